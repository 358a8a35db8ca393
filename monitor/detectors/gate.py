"""What all detectors share: warm-up, restarts, and the phase the learning rate is in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from monitor.detectors.base import WARMUP_STEPS, StepFrame

GRACE_STEPS = 50
"""No verdict in the first steps of a resumed attempt: lost optimizer state makes waves."""

LrPhase = Literal["unknown", "warmup", "flat", "decay", "tail", "cut"]


@dataclass(slots=True)
class Gate:
    """Keeps count of where a run began, where the attempt began, and what is still warm-up."""

    attempt: str = ""
    run_first_step: int | None = None
    attempt_first_step: int = 0
    restarted: bool = False

    def enter(self, frame: StepFrame) -> bool:
        """Note the frame; True when it is the first of a new attempt after another one."""
        if self.run_first_step is None:
            self.run_first_step = self.attempt_first_step = frame.step
            self.attempt = frame.attempt
            return False
        if frame.attempt == self.attempt:
            return False
        self.attempt, self.attempt_first_step = frame.attempt, frame.step
        self.restarted = frame.step > self.run_first_step
        self.run_first_step = min(self.run_first_step, frame.step)
        return True

    def steps_to_go(self, step: int) -> int:
        """How many steps of warm-up or grace are left; 0 when verdicts may be given."""
        start = self.run_first_step or 0
        left = start + WARMUP_STEPS - step
        if self.restarted:
            left = max(left, self.attempt_first_step + GRACE_STEPS - step)
        return max(left, 0)

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)


TAIL_SHARE = 0.01
"""Below this share of its peak the learning rate cannot move the loss any more."""
DECAY_SHARE = 0.98
"""Below this share of its peak the schedule has left its flat part."""
CUT_SHARE = 0.1
"""A fall from above this share straight into the tail is no schedule: somebody cut it off."""
STEP_RATIO = 1.5
"""A change by this factor between two steps is a step of the schedule: trends begin anew."""


@dataclass(slots=True)
class LrWatch:
    """Reads the phase of the schedule off the ``lr/*`` series themselves.

    ``changes`` counts what makes earlier trends void: a step of the schedule, or a warm restart.
    """

    value: float | None = None
    peak: float = 0.0
    rising: bool = False
    trough: float = 0.0
    was_cut: bool = False
    cut_step: int | None = None
    cut_at: float | None = None
    changes: int = 0

    def see(self, frame: StepFrame) -> None:
        """Take in the largest of the frame's learning rates, if it has any."""
        rates = [v for key, v in frame.values.items() if key.startswith("lr/") and v >= 0]
        if rates:
            self._take(max(rates), frame.step, frame.t)

    def _take(self, rate: float, step: int, at: float) -> None:
        previous = self.value
        self.value = rate
        if previous is None:
            self.peak = self.trough = rate
            return
        self._note_cut(previous, rate, step, at)
        self._note_change(previous, rate)
        self.rising = rate > self.peak
        if self.rising:
            self.peak = self.trough = rate
        self.trough = min(self.trough, rate)

    def _note_cut(self, previous: float, rate: float, step: int, at: float) -> None:
        if rate >= TAIL_SHARE * self.peak:
            self.was_cut = False
        elif previous > CUT_SHARE * self.peak:
            self.was_cut, self.cut_step, self.cut_at = True, step, at

    def _note_change(self, previous: float, rate: float) -> None:
        warm_restart = self.trough < 0.5 * self.peak and rate > 2.0 * self.trough
        stepped_down = previous > STEP_RATIO * rate and rate >= TAIL_SHARE * self.peak
        if warm_restart or stepped_down:
            self.changes += 1
            self.peak = self.trough = rate

    @property
    def phase(self) -> LrPhase:
        if self.value is None:
            return "unknown"
        if self.was_cut:
            return "cut"
        if self.rising:
            return "warmup"
        if self.value < TAIL_SHARE * self.peak:
            return "tail"
        return "decay" if self.value < DECAY_SHARE * self.peak else "flat"

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)
