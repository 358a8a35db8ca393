"""Time from the data alone: seconds a run has taken, whatever its clock does."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_GAP_S = 7 * 86_400.0
"""A leap beyond this between two steps is a clock that was set, not a run that waited."""


@dataclass(slots=True)
class Elapsed:
    """Adds up the time between frames: steps back and leaps of the clock count nothing."""

    total_s: float = 0.0
    last_t: float | None = None

    def see(self, t: float) -> float:
        """The time so far, with this frame's (seconds)."""
        if self.last_t is not None:
            gap = t - self.last_t
            self.total_s += gap if 0.0 < gap < LONGEST_GAP_S else 0.0
        self.last_t = t
        return self.total_s
