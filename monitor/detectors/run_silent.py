"""Run silent: nothing comes any more, or heartbeats without steps. Judged by the server's ticks.

Heartbeats (the sender's thread lives) and steps (the loop goes on) are two signals. Time is counted
in ticks, of which there are none while the server is down: its own absence is nobody's silence.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.detectors.robust import median
from monitor.detectors.saying import finite, said
from monitor.domain.words import duration_text

BUSY = frozenset({"evaluation", "checkpoint", "sampling"})


@dataclass(frozen=True, slots=True)
class Params:
    """``lost_s``: three heartbeats of 30 s missed. ``stalled_s`` and ``stalled_steps``: no step for
    five minutes and for ten usual steps, whichever is longer. ``critical_stalled_s``: by then the
    loop hangs, whatever the reason. ``gap_s``: ticks come every 15 s; where they did not for this
    long the server was away, and every silence is counted anew. ``longest_phase_s``: a phase that
    nobody ended does not excuse silence for ever."""

    lost_s: float = 90.0
    stalled_s: float = 300.0
    stalled_steps: float = 10.0
    critical_stalled_s: float = 1800.0
    gap_s: float = 45.0
    longest_phase_s: float = 4 * 3600.0


@dataclass(slots=True)
class _Memory:
    attempt: str = ""
    step: int | None = None
    """The last step heard of; ``heard_at`` and ``moved_at``: when anything, and a step, came."""
    heard_at: float = 0.0
    moved_at: float = 0.0
    silent_s: float = 0.0
    still_s: float = 0.0
    tick_at: float | None = None
    phases: list[str] = field(default_factory=list)
    phase_s: float = 0.0
    told: Literal["", "lost", "stalled"] = ""
    steps_s: list[float] = field(default_factory=list)


class RunSilent(Detector):
    """Lost: nothing for 90 s. Stalled: heartbeats, but no step for long and no phase under way."""

    name: ClassVar[str] = "run_silent"
    title: ClassVar[str] = "the run has gone silent"
    needs: ClassVar[tuple[str, ...]] = ("step_s",)
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=1)
    hears: ClassVar[bool] = True

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Note what arrived, or count the time that passed."""
        step_s = finite(frame, "step_s")
        if step_s is not None:
            self._memory.steps_s = list(deque([*self._memory.steps_s, step_s], maxlen=32))
        kinds = {event.kind for event in frame.events}
        if "arrival" in kinds:
            return self._arrived(frame)
        return self._passed(frame) if "tick" in kinds else []

    # -- what came ------------------------------------------------------------------------------

    def _arrived(self, frame: StepFrame) -> list[Verdict]:
        memory = self._memory
        was_lost = memory.told == "lost"
        memory.heard_at, memory.silent_s = frame.t, 0.0
        if was_lost or memory.attempt != frame.attempt:
            # What is back has a whole window to show that it steps.
            self._moved(frame.t)
        if memory.attempt != frame.attempt:
            memory.attempt, memory.step, memory.phases = frame.attempt, None, []
        for event in frame.events:
            self._hear(event.kind, event.name, event.data.get("step"), frame.t)
        if memory.told == "lost" or (memory.told == "stalled" and memory.still_s == 0.0):
            reason = "heard_again" if was_lost else "steps_again"
            memory.told = ""
            return [said(self, frame, "calm", "info", reason)]
        return []

    def _hear(self, kind: str, name: str, step: Any, at: float) -> None:
        memory = self._memory
        if kind == "arrival" and step is not None:
            if memory.step is None or step > memory.step:
                memory.step = int(step)
                self._moved(at)
        elif kind == "phase" and name in BUSY:
            memory.phases, memory.phase_s = [*memory.phases, name], 0.0
        elif kind == "phase_end" and name in memory.phases:
            memory.phases.remove(name)
            self._moved(at)  # the loop lives: it ended a phase

    def _moved(self, at: float) -> None:
        self._memory.moved_at, self._memory.still_s = at, 0.0

    # -- what did not ---------------------------------------------------------------------------

    def _passed(self, frame: StepFrame) -> list[Verdict]:
        memory = self._memory
        if not memory.attempt:
            return []
        since = frame.t - memory.tick_at if memory.tick_at is not None else None
        memory.tick_at = frame.t
        if since is None or not 0 <= since < self.params.gap_s:
            memory.silent_s = memory.still_s = 0.0  # the server was away: a whole window for all
            return []
        # Silence begins at what came last, not at the tick before it.
        memory.silent_s += min(since, max(0.0, frame.t - memory.heard_at))
        memory.phase_s += since
        if not memory.phases or memory.phase_s > self.params.longest_phase_s:
            memory.still_s += min(since, max(0.0, frame.t - memory.moved_at))
        return self._judge(frame)

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        memory, params = self._memory, self.params
        if memory.silent_s >= params.lost_s:
            memory.told = "lost"
            return [self._lost(frame)]
        if memory.still_s >= self._patience():
            memory.told = "stalled"
            return [self._stalled(frame)]
        return []

    def _patience(self) -> float:
        usual = median(self._memory.steps_s)
        return max(self.params.stalled_s, self.params.stalled_steps * usual)

    def _lost(self, frame: StepFrame) -> Verdict:
        memory = self._memory
        evidence = Evidence(
            rule="lost",
            version=self.version,
            value=memory.silent_s,
            threshold=self.params.lost_s,
            unit="s",
            onset_step=memory.step or 0,
            onset_at=memory.heard_at,
            series=("step_s",),
            numbers=(("nothing heard for", memory.silent_s, "s", "heartbeats come every 30 s"),),
            summary=f"Nothing came for {duration_text(memory.silent_s)}, not even a heartbeat; the "
            f"last step heard of is {memory.step or 0:,}. No end was declared.",
            causes=self._lost_causes(),
            first_action="look whether the process and its machine are alive. If they are, the "
            "way from there to here is cut: nothing is lost, the client keeps it on disk.",
            clears="anything that arrives.",
        )
        title = "nothing heard from the run"
        return said(self, frame, "bad", "critical", "lost", title=title, evidence=evidence)

    def _lost_causes(self) -> tuple[Cause, ...]:
        where = f"during a phase ({self._memory.phases[-1]})" if self._memory.phases else ""
        return (
            Cause(
                "the process was killed (out of memory, SIGKILL, preemption) or its machine died",
                signs_seen=1,
                signs_of=2,
                why="it went without a word" + (f", {where}" if where else ""),
            ),
            Cause(
                "the network between the run and this server is cut",
                signs_seen=1,
                signs_of=2,
                why="from here the two look alike",
            ),
        )

    def _stalled(self, frame: StepFrame) -> Verdict:
        memory, patience = self._memory, self._patience()
        long = memory.still_s >= max(self.params.critical_stalled_s, 2.0 * patience)
        usual = median(memory.steps_s)
        told = f"usual: {usual:.2f} s a step" if usual else "no step time is known"
        evidence = Evidence(
            rule="stalled",
            version=self.version,
            value=memory.still_s,
            threshold=patience,
            unit="s",
            n=len(memory.steps_s),
            onset_step=memory.step or 0,
            onset_at=memory.moved_at,
            series=("step_s", "data_wait_s"),
            numbers=(("no step for", memory.still_s, "s", told),),
            summary=f"Heartbeats arrive, but no step after {memory.step or 0:,} for "
            f"{duration_text(memory.still_s)} ({told}), and no evaluation, checkpoint or sampling "
            "is under way.",
            causes=self._stalled_causes(),
            first_action="look where the process hangs (py-spy dump --pid PID), on every rank.",
            clears="the next step.",
        )
        severity: Severity = "critical" if long else "warning"
        title = "the loop has stopped stepping"
        return said(
            self, frame, "bad", severity, "stalled", title=title, evidence=evidence
        )  # fmt: skip

    def _stalled_causes(self) -> tuple[Cause, ...]:
        phase = self._memory.phases[-1] if self._memory.phases else ""
        causes = [
            Cause(
                "unexplained: the loop hangs in a collective, in the loader or in a lock; from "
                "outside they look alike",
                signs_seen=0,
                signs_of=1,
                why="the sender's thread lives, so the process does",
            )
        ]
        if phase:
            why = f"it began {duration_text(self._memory.phase_s)} ago and was never ended"
            causes.insert(0, Cause(f"it hangs in its {phase}", signs_seen=1, signs_of=1, why=why))
        return tuple(causes)

    def snapshot(self) -> dict[str, Any]:
        return asdict(self._memory)

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = _Memory(**state)
