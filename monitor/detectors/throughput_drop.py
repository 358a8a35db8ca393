"""Throughput drop: fewer tokens a second than the run itself has shown it can do."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import (
    WARMUP_STEPS,
    Cause,
    Detector,
    Evidence,
    Hold,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.detectors.elapsed import Elapsed
from monitor.detectors.robust import median, noise_sd
from monitor.detectors.saying import finite, said, unsure
from monitor.domain.words import duration_text


@dataclass(frozen=True, slots=True)
class Params:
    """``block_points``: speeds are judged by medians of so many steps, which evaluations and single
    long steps do not move. The reference is the best ``reference_s`` between ``from_s`` and
    ``until_s`` (a cold card is faster at first), or lies in the first ``short_share`` of a run
    planned to take less than ``short_s``. ``drawn`` and ``warned``: drops that are shown and that
    warn; the steadiest real runs keep within 1 %. ``noise_sds``: nor is a drop one that the blocks'
    own scatter would make. ``lasting_s``: how long it must last, beside two blocks;
    in a short run ``lasting_share`` of it, but ``least_lasting_s``.
    ``batch_change``: tokens a step that change by more void the reference."""

    block_points: int = 50
    reference_s: float = 1800.0
    from_s: float = 1800.0
    until_s: float = 7200.0
    short_share: float = 0.1
    short_s: float = 8 * 3600.0
    drawn: float = 0.04
    warned: float = 0.08
    noise_sds: float = 4.0
    lasting_s: float = 300.0
    lasting_share: float = 0.01
    least_lasting_s: float = 60.0
    batch_change: float = 0.02
    least_blocks: int = 3


@dataclass(slots=True)
class _Memory:
    attempt: str = ""
    first_step: int | None = None
    hardware: str = ""
    by_tokens: bool = False
    speeds: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    block_step: int = 0
    block_t: float = 0.0
    begun_s: float = 0.0
    """Blocks of the reference period: seconds, speed, and the companions as they were."""
    ref_times: list[float] = field(default_factory=list)
    ref_speeds: list[float] = field(default_factory=list)
    ref_batch: float | None = None
    reference: float | None = None
    sd: float = 0.0
    usual: dict[str, float] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)
    low_blocks: int = 0
    low_since_s: float = 0.0
    onset_step: int = 0
    onset_t: float = 0.0
    lost_s: float = 0.0
    open: bool = False
    told: bool = False
    restarted_at: int | None = None


COMPANIONS = ("data_wait_share", "hook_share")


class ThroughputDrop(Detector):
    """Info at 4 % below the run's own reference, a warning at 8 %."""

    name: ClassVar[str] = "throughput_drop"
    title: ClassVar[str] = "throughput has dropped"
    needs: ClassVar[tuple[str, ...]] = (
        "tokens_per_s", "step_s", *COMPANIONS, "gpu_throttle*", "gpu_other_process*",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=2)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._memory = _Memory()
        self._elapsed = Elapsed()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Take the step's speed; judge whenever a block of them is full."""
        now_s = self._elapsed.see(frame.t)
        self._enter(frame, now_s)
        self._companions(frame)
        speed = self._speed(frame)
        if speed is None:
            return []
        memory = self._memory
        if not memory.speeds:
            memory.block_step, memory.block_t = frame.step, frame.t
        memory.speeds.append(speed)
        if len(memory.speeds) < self.params.block_points:
            return []
        block, memory.speeds = median(memory.speeds), []
        batch, memory.batches = median(memory.batches), []
        return self._block(frame, now_s, block, batch)

    def _enter(self, frame: StepFrame, now_s: float) -> None:
        """A restart keeps the reference on the same hardware: it must come up to it again."""
        memory, facts = self._memory, self._facts.facts
        if memory.first_step is None:
            memory.first_step, memory.begun_s = frame.step, now_s
        if frame.attempt == memory.attempt:
            return
        hardware = f"{facts.get('world_size')} {facts.get('gpus')}"
        if memory.attempt:
            memory.restarted_at = frame.step
            memory.speeds, memory.batches = [], []
            if hardware != memory.hardware:
                self._begin_anew(now_s)
        memory.attempt, memory.hardware = frame.attempt, hardware

    def _begin_anew(self, now_s: float) -> None:
        memory = self._memory
        memory.reference, memory.ref_batch = None, None
        memory.ref_times, memory.ref_speeds = [], []
        memory.begun_s, memory.low_blocks = now_s, 0

    def _companions(self, frame: StepFrame) -> None:
        for key, value in frame.values.items():
            if key.startswith(("data_wait_share", "hook_share", "gpu_")) and math.isfinite(value):
                self._memory.now[key] = value

    def _speed(self, frame: StepFrame) -> float | None:
        """Tokens a second, or steps a second in a run that does not count tokens."""
        memory = self._memory
        tokens, step_s = finite(frame, "tokens_per_s"), finite(frame, "step_s")
        if frame.step < (memory.first_step or 0) + WARMUP_STEPS:
            return None
        if tokens is not None and tokens > 0.0:
            memory.by_tokens = True
            if step_s:
                memory.batches.append(tokens * step_s)
            return tokens
        return 1.0 / step_s if step_s and step_s > 0.0 and not memory.by_tokens else None

    # -- blocks -----------------------------------------------------------------------------------

    def _block(self, frame: StepFrame, now_s: float, speed: float, batch: float) -> list[Verdict]:
        memory = self._memory
        verdicts: list[Verdict] = []
        held = memory.ref_batch
        if batch and held and abs(batch / held - 1.0) > self.params.batch_change:
            if memory.open:
                verdicts = [said(self, frame, "calm", "info", "batch_changed")] * self.hold.calm
                memory.open = False
            self._begin_anew(now_s)
        if memory.reference is not None:
            return verdicts + self._judge(frame, now_s, speed, memory.reference)
        memory.ref_batch = memory.ref_batch or batch or None
        return verdicts + self._gather(frame, now_s, speed)

    def _gather(self, frame: StepFrame, now_s: float, speed: float) -> list[Verdict]:
        """Until there is a reference. Of a short run its first tenth, else the best half hour."""
        memory, params = self._memory, self.params
        memory.ref_times, memory.ref_speeds = (
            [*memory.ref_times, now_s][-4000:], [*memory.ref_speeds, speed][-4000:],
        )  # fmt: skip
        ran_s = now_s - memory.begun_s
        short_until = self._short_until(frame.step, ran_s)
        enough = len(memory.ref_speeds) >= params.least_blocks
        if short_until is not None:
            done = frame.step >= short_until
            chosen = memory.ref_speeds
        else:
            done = ran_s >= params.until_s
            chosen = self._best_half_hour()
        if done and enough and chosen:
            memory.reference = sum(chosen) / len(chosen)
            memory.sd = noise_sd(np.asarray(memory.ref_speeds, np.float64))
            memory.usual = dict(memory.now)
            memory.ref_times, memory.ref_speeds = [], []
        elif not memory.told:
            memory.told = True
            return [unsure(self, frame, self._missing(short_until))]
        return []

    def _missing(self, short_until: float | None) -> str:
        if short_until is not None:
            return f"needs a reference: the run's own speed up to step {short_until:,.0f}"
        return "needs a reference: the run's own speed up to 2 h (or planned_steps, in a short run)"

    def _short_until(self, step: int, ran_s: float) -> float | None:
        """The step that ends the reference of a short run; None: it is long, or nobody knows."""
        planned, first = self._facts.facts.get("planned_steps"), self._memory.first_step or 0
        done = step - first
        if not planned or done <= 0:
            return None
        left = float(planned) - first
        if ran_s * left / done >= self.params.short_s:
            return None
        return step if ran_s >= self.params.until_s else first + self.params.short_share * left

    def _best_half_hour(self) -> list[float]:
        """Speeds of the blocks of the fastest half hour within the reference's hours."""
        memory, params = self._memory, self.params
        times = np.asarray(memory.ref_times) - memory.begun_s
        speeds = np.asarray(memory.ref_speeds)
        inside = times >= min(params.from_s, float(times[-1]) / 4)
        times, speeds = times[inside], speeds[inside]
        best: list[float] = []
        for index, end in enumerate(times):
            window = speeds[: index + 1][times[: index + 1] > end - params.reference_s]
            if end - times[0] >= 0.8 * params.reference_s or end == times[-1]:
                if not best or window.mean() > sum(best) / len(best):
                    best = window.tolist()
        return best

    def _judge(
        self, frame: StepFrame, now_s: float, speed: float, reference: float
    ) -> list[Verdict]:
        memory, params = self._memory, self.params
        drop = 1.0 - speed / reference
        if drop < params.drawn or reference - speed < params.noise_sds * memory.sd:
            memory.low_blocks = 0
            if memory.open and drop < params.drawn:
                return [said(self, frame, "calm", "info", "as_fast_as_before")]
            return []
        if memory.low_blocks == 0:
            memory.onset_step, memory.onset_t = memory.block_step, memory.block_t
            memory.low_since_s = now_s - max(0.0, frame.t - memory.block_t)
            memory.lost_s = 0.0
        memory.low_blocks += 1
        memory.lost_s = drop * (now_s - memory.low_since_s)
        lasting = now_s - memory.low_since_s >= self._lasting_s(frame.step, now_s)
        if memory.low_blocks < 2 or not lasting:
            return []
        memory.open = True
        severity: Severity = "warning" if drop >= params.warned else "info"
        evidence = self._evidence(frame, speed, reference, drop)
        return [said(self, frame, "bad", severity, "slower", evidence=evidence)]

    def _lasting_s(self, step: int, now_s: float) -> float:
        """Five minutes; in a short run a hundredth of it, but at least one minute."""
        memory, params = self._memory, self.params
        if self._short_until(step, now_s - memory.begun_s) is None:
            return params.lasting_s
        planned = float(self._facts.facts["planned_steps"]) - (memory.first_step or 0)
        whole_s = now_s * planned / max(1, step - (memory.first_step or 0))
        return min(params.lasting_s, max(params.least_lasting_s, params.lasting_share * whole_s))

    # -- words --------------------------------------------------------------------------------

    def _evidence(self, frame: StepFrame, speed: float, reference: float, drop: float) -> Evidence:
        memory = self._memory
        unit = "tokens/s" if memory.by_tokens else "steps/s"
        planned = self._facts.facts.get("planned_steps")
        later = ""
        if planned:
            done = max(1, frame.step - (memory.first_step or 0))
            pace = self._elapsed.total_s / done
            late_s = max(0.0, float(planned) - frame.step) * pace * drop
            later = f" The run ends {duration_text(late_s)} later if it stays so." if late_s else ""
        return Evidence(
            rule="own_reference",
            version=self.version,
            value=speed,
            threshold=(1.0 - self.params.warned) * reference,
            unit=unit,
            n=memory.low_blocks * self.params.block_points,
            onset_step=memory.onset_step,
            onset_at=memory.onset_t,
            series=("tokens_per_s" if memory.by_tokens else "step_s", "step_s", *COMPANIONS),
            numbers=(
                ("throughput", speed, unit, f"reference {reference:.4g}"),
                ("time lost", memory.lost_s, "s", "since the onset"),
            ),
            summary=f"{speed:.4g} {unit}, {100 * drop:.0f} % below this run's own reference "
            f"({reference:.4g}), for {memory.low_blocks * self.params.block_points} steps; "
            f"{duration_text(memory.lost_s)} lost so far.{later}",
            causes=self._causes(drop),
            first_action="look at data wait, GPU clocks and other processes; compare the ranks.",
            clears=f"within {100 * self.params.drawn:.0f} % of the reference for "
            f"{self.hold.calm * self.params.block_points} steps.",
        )

    def _causes(self, drop: float) -> tuple[Cause, ...]:
        memory, found = self._memory, []
        for key, text in (
            ("data_wait_share", "the loader: the loop waits longer for its batches"),
            ("hook_share", "the hooks themselves take more of the step"),
        ):
            grew = memory.now.get(key, 0.0) - memory.usual.get(key, 0.0)
            if grew > 0.3 * drop:
                why = f"{key} grew by {100 * grew:.0f} points"
                found.append(Cause(text, signs_seen=1, signs_of=1, why=why))
        if any(v for k, v in memory.now.items() if k.startswith("gpu_other_process")):
            text = "another process uses the GPU"
            found.append(Cause(text, signs_seen=1, signs_of=1, why="gpu_other_process"))
        if any(v > 0 for k, v in memory.now.items() if k.startswith("gpu_throttle")):
            text = "the GPU holds its clocks down (heat or power)"
            found.append(Cause(text, signs_seen=1, signs_of=1, why="gpu_throttle"))
        if memory.restarted_at is not None and memory.onset_step - memory.restarted_at < 500:
            text = "what changed with the restart (host, network, code)"
            why = f"it began with the attempt at step {memory.restarted_at:,}"
            found.append(Cause(text, signs_seen=1, signs_of=2, why=why))
        if not found:
            why = "data wait and the hooks' share are as before, or not measured"
            found.append(Cause("unexplained", signs_seen=0, signs_of=1, why=why))
        return tuple(found)

    def snapshot(self) -> dict[str, Any]:
        return {"memory": asdict(self._memory), "elapsed": asdict(self._elapsed)}

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = _Memory(**state["memory"])
        self._elapsed = Elapsed(**state["elapsed"])
