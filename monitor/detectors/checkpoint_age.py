"""Checkpoint age: how much would be lost if the run died now, against the run's own habit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.elapsed import Elapsed
from monitor.detectors.saying import said, unsure
from monitor.domain.words import duration_text


@dataclass(frozen=True, slots=True)
class Params:
    """``times_usual``: against the longest of the last ``intervals`` intervals between checkpoints
    (some space them ever wider, by powers of two). ``least_s``: less time than this is nobody's
    worry. ``no_checkpoint_s``: after so long without any, we say that none was told."""

    times_usual: float = 2.5
    intervals: int = 3
    least_s: float = 600.0
    no_checkpoint_s: float = 3600.0


@dataclass(slots=True)
class _Memory:
    attempt: str = ""
    first_step: int | None = None
    steps: list[int] = field(default_factory=list)
    last_step: int | None = None
    last_at: float = 0.0
    last_s: float = 0.0
    begun: bool = False
    begun_step: int = 0
    open: bool = False
    told: bool = False


class CheckpointAge(Detector):
    """Warns when the next checkpoint is overdue by 2.5 of the longest recent intervals."""

    name: ClassVar[str] = "checkpoint_age"
    title: ClassVar[str] = "no checkpoint"
    needs: ClassVar[tuple[str, ...]] = ("step_s", "loss/train")
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=1)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._memory = _Memory()
        self._elapsed = Elapsed()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Note finished checkpoints; judge the age of the last at every step."""
        now_s = self._elapsed.see(frame.t)
        memory = self._memory
        if memory.first_step is None:
            memory.first_step = frame.step
        if frame.attempt != memory.attempt:
            self._enter(frame, now_s)
        verdicts: list[Verdict] = []
        for event in frame.events:
            if event.name == "checkpoint" and event.kind == "phase":
                memory.begun, memory.begun_step = True, frame.step
            elif event.name == "checkpoint" and event.kind == "phase_end":
                verdicts += self._saved(frame, now_s)
        return verdicts or self._judge(frame, now_s)

    def _enter(self, frame: StepFrame, now_s: float) -> None:
        """A new attempt begins where a checkpoint was: from there it counts."""
        memory = self._memory
        if memory.attempt:
            memory.steps = [step for step in memory.steps if step < frame.step]
            memory.last_step, memory.last_s, memory.last_at = frame.step, now_s, frame.t
        memory.attempt, memory.begun = frame.attempt, False

    def _saved(self, frame: StepFrame, now_s: float) -> list[Verdict]:
        memory = self._memory
        if memory.last_step is not None and frame.step > memory.last_step:
            memory.steps = [*memory.steps, frame.step - memory.last_step]
            del memory.steps[: -self.params.intervals]
        memory.last_step, memory.last_at, memory.last_s = frame.step, frame.t, now_s
        memory.begun = False
        was_open, memory.open = memory.open, False
        return [said(self, frame, "calm", "info", "saved")] if was_open or memory.told else []

    def _judge(self, frame: StepFrame, now_s: float) -> list[Verdict]:
        memory, params = self._memory, self.params
        if memory.last_step is None:
            if now_s < params.no_checkpoint_s or memory.told:
                return []
            memory.told = True
            missing = 'no checkpoint was told yet: with w.phase("checkpoint", path=...)'
            return [unsure(self, frame, missing)]
        if not memory.steps:
            return []
        longest = max(memory.steps)
        age, age_s = frame.step - memory.last_step, now_s - memory.last_s
        if age <= params.times_usual * longest or age_s < params.least_s:
            return []
        memory.open = True
        evidence = self._evidence(frame, age, age_s, longest)
        return [said(self, frame, "bad", "warning", "overdue", evidence=evidence)]

    def _evidence(self, frame: StepFrame, age: int, age_s: float, longest: int) -> Evidence:
        memory = self._memory
        last = memory.last_step or 0
        price = self._facts.facts.get("price_per_hour")
        currency = str(self._facts.facts.get("currency") or "USD")
        money = f", {age_s / 3600 * float(price):,.2f} {currency}" if price else ""
        stuck = Cause(
            "a checkpoint was begun and never finished: disk full, or the writer hangs",
            signs_seen=int(memory.begun),
            signs_of=1,
            why=f"begun at step {memory.begun_step:,}" if memory.begun else "none is under way",
        )
        changed = Cause(
            "the saving interval was changed, or the condition that saves is not met any more",
            signs_seen=int(not memory.begun),
            signs_of=2,
            why="unexplained by other signals",
        )
        return Evidence(
            rule="overdue",
            version=self.version,
            value=float(age),
            threshold=self.params.times_usual * longest,
            unit="steps",
            n=len(memory.steps),
            onset_step=last + longest,
            onset_at=memory.last_at,
            series=("step_s",),
            numbers=(("steps since the last checkpoint", float(age), "", f"usual {longest:,}"),),
            summary=f"The last checkpoint is {age:,} steps old ({duration_text(age_s)}; the "
            f"longest of the recent intervals is {longest:,} steps). If the run died now, "
            f"{duration_text(age_s)}{money} would be lost.",
            causes=(stuck, changed) if memory.begun else (changed, stuck),
            first_action="save one now; look at the disk and at the log of the saver.",
            clears="the next finished checkpoint.",
        )

    def snapshot(self) -> dict[str, Any]:
        return {"memory": asdict(self._memory), "elapsed": asdict(self._elapsed)}

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = _Memory(**state["memory"])
        self._elapsed = Elapsed(**state["elapsed"])
