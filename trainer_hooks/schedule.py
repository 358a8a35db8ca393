"""Which step measures what, and how far that has to be stretched to keep to the budget.

Every cadence (``weights``, ``probe``, ...) has an interval in steps. What one sample costs is
measured; where all samples together would take more than the budget's share of the step time, all
intervals are stretched by one factor, and come back when samples get cheaper or steps longer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

DEFAULT_EVERY: dict[str, int] = {"weights": 50, "probe": 50}
DEFAULT_BUDGET = 0.01
WINDOW_STEPS = 100
COSTS_KEPT = 5
MIN_STEPS = 5


@dataclass(slots=True)
class _Cadence:
    """An interval in steps, the next due step, and what the last samples cost (s)."""

    every: int
    next_due: int = 0
    costs_s: deque[float] = field(default_factory=lambda: deque(maxlen=COSTS_KEPT))

    def load(self) -> float:
        """Seconds per step at the asked interval. The first sample also warms up: median."""
        return median(self.costs_s) / self.every if self.costs_s else 0.0


class Schedule:
    """Answers what is due, and turns itself down.

    Args:
        every: cadence -> interval in steps; 0 switches one off.
        budget: the share of step time that sampling may take; None: no bound.
    """

    def __init__(self, every: Mapping[str, int], budget: float | None = DEFAULT_BUDGET) -> None:
        self._cadences = {name: _Cadence(max(0, int(n))) for name, n in every.items()}
        self._budget = budget
        self._steps: deque[tuple[float, float]] = deque(maxlen=WINDOW_STEPS)
        self._step_s = 0.0
        self._hook_s = 0.0
        self.stretch = 1.0
        self.proposal = 1.0
        """What this process alone would stretch intervals by."""
        self.is_shared = False
        """Whether several processes have to look at the same steps: then they agree on one."""

    def agree(self, stretch: float) -> None:
        """All processes stretch their intervals by this from now on."""
        self.stretch = max(1.0, stretch)

    def resume(self, step: int) -> None:
        """The next step is ``step + 1``, so what was due later may be due now."""
        for entry in self._cadences.values():
            entry.next_due = min(entry.next_due, step + 1)

    def due(self, cadence: str, step: int) -> bool:
        """Whether a sample of this cadence belongs to this step."""
        entry = self._cadences.get(cadence)
        return entry is not None and entry.every > 0 and step >= entry.next_due

    def sampled(self, cadence: str, step: int, cost_s: float) -> None:
        """A sample was taken: its cost counts, and the next one is due an interval later."""
        entry = self._cadences[cadence]
        entry.costs_s.append(cost_s)
        self._adjust()
        interval = self.interval(cadence)
        # On multiples of the interval, so that the steps are the ones people expect.
        entry.next_due = (step // interval + 1) * interval

    def stepped(self, step_s: float, hook_s: float) -> None:
        """A step took ``step_s``, hooks included; ``hook_s`` of that were ours."""
        if len(self._steps) == WINDOW_STEPS:
            old_step_s, old_hook_s = self._steps[0]
            self._step_s -= old_step_s
            self._hook_s -= old_hook_s
        self._steps.append((step_s, hook_s))
        self._step_s += step_s
        self._hook_s += hook_s

    def interval(self, cadence: str) -> int:
        """The achieved interval in steps."""
        return max(1, math.ceil(self._cadences[cadence].every * self.stretch))

    @property
    def cadences(self) -> list[str]:
        """Those that are on."""
        return [name for name, entry in self._cadences.items() if entry.every > 0]

    @property
    def hook_share(self) -> float | None:
        """The hooks' share of the last 100 steps' time; None before there is a step."""
        return max(0.0, self._hook_s) / self._step_s if self._step_s > 0 else None

    def _adjust(self) -> None:
        if self._budget is None or len(self._steps) < MIN_STEPS:
            return
        own_s = max(self._step_s - self._hook_s, 0.0) / len(self._steps)
        allowed_s = self._budget * own_s
        wanted_s = sum(entry.load() for entry in self._cadences.values() if entry.every)
        self.proposal = max(1.0, wanted_s / allowed_s) if allowed_s > 0 else 1.0
        if not self.is_shared:
            self.stretch = self.proposal
