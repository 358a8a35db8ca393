"""Which step measures what, and how far that has to be stretched to keep to the budget.

Every cadence (``weights``, ``probe``, ...) has an interval in steps. What one sample costs is
measured, and paid for out of an allowance: the budget's share of the step time, less what the hooks
cost at every step anyway. The first sample of a cadence is taken at once, on credit; every later
one waits, by whole intervals, until it and all before it are paid. So a run keeps to the budget
from its second samples on, however long the first one took, and intervals come back when samples
get cheaper or steps longer.

Where several processes have to look at the same steps nothing may follow from one's clock: there
intervals are stretched by factors that all agreed on (``proposals``, ``agree``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

DEFAULT_EVERY: dict[str, int] = {"weights": 50, "probe": 50}
DEFAULT_BUDGET = 0.01
SHARED = tuple(sorted(DEFAULT_EVERY))
"""Cadences whose intervals several processes agree on, in the order of their figures."""
WINDOW_STEPS = 100
COSTS_KEPT = 5
HEADROOM = 0.8
"""Of the budget: the rest is for what no clock of the host sees, such as a colder cache after."""
LEAST_FOR_SAMPLES = 0.5
"""Of the budget: for samples, however much the calls at every step take."""
LEAST_OWN = 0.01
"""Of a step, whatever the clocks say: something has to be allowed."""
WORTH_TELLING = 2.0
"""A change of the interval by this factor is told."""


@dataclass(frozen=True, slots=True)
class Turned:
    """An interval that is now another one by a factor worth telling; steps, and s a sample."""

    cadence: str
    asked_steps: int
    interval_steps: int
    cost_s: float


@dataclass(slots=True)
class _Cadence:
    """An interval in steps, the next due step, and the account of its samples (s)."""

    every: int
    next_due: int = 0
    costs_s: deque[float] = field(default_factory=lambda: deque(maxlen=COSTS_KEPT))
    cost_s: float = 0.0
    """What the next sample will cost. The first ones also warm up: the median."""
    credit_s: float = 0.0
    """What was allowed and not yet spent; at most one sample's cost is saved up."""
    income_s: float = 0.0
    """What is allowed for a step."""
    stretch: float = 1.0
    """Of the interval, as several processes agreed."""
    last: int | None = None
    distance: int = 0
    """Steps between the last two samples."""
    told: int = 0

    @property
    def is_paid(self) -> bool:
        """Whether the next sample is."""
        return not self.costs_s or self.credit_s >= self.cost_s

    def spend(self, cost_s: float) -> None:
        """A sample was taken."""
        self.costs_s.append(cost_s)
        self.cost_s = median(self.costs_s)
        self.credit_s -= cost_s

    def spend_more(self, extra_s: float) -> None:
        """The last sample cost more than was known."""
        self.costs_s[-1] += extra_s
        self.cost_s = median(self.costs_s)
        self.credit_s -= extra_s

    def wait_steps(self) -> int:
        """Steps until the next sample is paid."""
        missing_s = self.cost_s - self.credit_s
        return math.ceil(missing_s / self.income_s) if missing_s > 0 and self.income_s > 0 else 0


class Schedule:
    """Answers what is due, and turns itself down.

    Args:
        every: cadence -> interval in steps; 0 switches one off.
        budget: the share of step time that the hooks may take; None: no bound.
    """

    def __init__(self, every: Mapping[str, int], budget: float | None = DEFAULT_BUDGET) -> None:
        self._cadences = {name: _Cadence(max(0, int(n))) for name, n in every.items()}
        self._budget = budget
        self._steps: deque[tuple[float, float, float]] = deque(maxlen=WINDOW_STEPS)
        self._step_s = 0.0
        self._hook_s = 0.0
        self._sampled_s = 0.0
        self._fresh_s = 0.0
        self._news: list[Turned] = []
        self.is_shared = False
        """Whether several processes have to look at the same steps: then they agree."""

    def proposals(self) -> list[float]:
        """For each cadence in ``SHARED``, what this process alone would stretch it by."""
        return [self._proposal(name) for name in SHARED]

    def agree(self, stretches: Sequence[float]) -> None:
        """All processes stretch their intervals by these from now on, in the order ``SHARED``."""
        for name, stretch in zip(SHARED, stretches, strict=True):
            if name in self._cadences and math.isfinite(stretch):
                self._cadences[name].stretch = max(1.0, stretch)

    def resume(self, step: int) -> None:
        """The next step is ``step + 1``, so what was due later may be due now."""
        for entry in self._cadences.values():
            entry.next_due = min(entry.next_due, step + 1)
            entry.last = None

    def due(self, cadence: str, step: int) -> bool:
        """Whether a sample of this cadence belongs to this step."""
        entry = self._cadences.get(cadence)
        return entry is not None and entry.every > 0 and step >= entry.next_due

    def sampled(self, cadence: str, step: int, cost_s: float) -> None:
        """A sample was taken: it has to be paid, and the next one is due an interval later."""
        entry = self._cadences[cadence]
        if cost_s > 0:
            entry.spend(cost_s)
            self._fresh_s += cost_s
        if entry.last is not None and step > entry.last:
            entry.distance = step - entry.last
            if self.is_shared or entry.distance <= entry.every:
                self._consider(cadence, entry.distance)
        entry.last = step
        interval = self._planned(entry)
        # On multiples of the interval, so that the steps are the ones people expect.
        entry.next_due = (step // interval + 1) * interval

    def owes(self, cadence: str, extra_s: float) -> None:
        """The last sample took this much longer than was known when it was taken."""
        entry = self._cadences.get(cadence)
        if entry is not None and entry.costs_s and extra_s > 0:
            entry.spend_more(extra_s)

    def stepped(self, step: int, step_s: float, hook_s: float) -> None:
        """Step ``step`` took ``step_s``, hooks included; ``hook_s`` of that were ours."""
        if len(self._steps) == WINDOW_STEPS:
            self._count(*(-part for part in self._steps[0]))
        sampled_s, self._fresh_s = self._fresh_s, 0.0
        self._steps.append((step_s, hook_s, sampled_s))
        self._count(step_s, hook_s, sampled_s)
        if self._budget is None:
            return
        self._earn(self._budget)
        if not self.is_shared:
            self._put_off(step + 1)

    def interval(self, cadence: str) -> int:
        """The achieved interval: steps between the last two samples, but no less than asked."""
        entry = self._cadences[cadence]
        return max(1, entry.every, entry.distance)

    def take_news(self) -> list[Turned]:
        """Intervals that were widened, or came back, since the last time."""
        news, self._news = self._news, []
        return news

    @property
    def cadences(self) -> list[str]:
        """Those that are on."""
        return [name for name, entry in self._cadences.items() if entry.every > 0]

    @property
    def hook_share(self) -> float | None:
        """The hooks' share of the last 100 steps' time; None before there is a step."""
        return max(0.0, self._hook_s) / self._step_s if self._step_s > 0 else None

    def _planned(self, entry: _Cadence) -> int:
        stretch = entry.stretch if self.is_shared else 1.0
        return max(1, math.ceil(entry.every * stretch))

    def _count(self, step_s: float, hook_s: float, sampled_s: float) -> None:
        self._step_s += step_s
        self._hook_s += hook_s
        self._sampled_s += sampled_s

    def _earn(self, budget: float) -> None:
        """Divide a step's allowance: a cheap cadence gets what it asks for, before a dear one."""
        count = len(self._steps)
        own_s = max(self._step_s - self._hook_s, LEAST_OWN * self._step_s) / count
        always_s = max(self._hook_s - self._sampled_s, 0.0) / count
        allowed_s = budget * own_s
        left_s = HEADROOM * max(allowed_s - always_s, LEAST_FOR_SAMPLES * allowed_s)
        entries = [entry for entry in self._cadences.values() if entry.every and entry.costs_s]
        entries.sort(key=lambda entry: entry.cost_s / entry.every)
        for place, entry in enumerate(entries):
            share_s = left_s / (len(entries) - place)
            entry.income_s = share_s
            left_s -= min(share_s, entry.cost_s / entry.every)
            entry.credit_s = min(entry.credit_s + share_s, max(entry.cost_s, entry.credit_s))

    def _put_off(self, step: int) -> None:
        """What would be due at this step and is not paid waits for another whole interval."""
        for name, entry in self._cadences.items():
            if entry.every and entry.next_due <= step and not entry.is_paid:
                entry.next_due = (step // entry.every + 1) * entry.every
                since = entry.every if entry.last is None else step - entry.last
                self._consider(name, since + entry.wait_steps())

    def _consider(self, cadence: str, interval_steps: int) -> None:
        """Tell of an interval that is not what was last told of."""
        entry = self._cadences[cadence]
        told = entry.told or entry.every
        interval_steps = max(interval_steps, entry.every)
        if interval_steps == entry.every:
            changed = told > entry.every
        else:
            changed = not 1 / WORTH_TELLING < interval_steps / told < WORTH_TELLING
        if changed and entry.costs_s:
            entry.told = interval_steps
            self._news.append(Turned(cadence, entry.every, interval_steps, entry.cost_s))

    def _proposal(self, cadence: str) -> float:
        """So that the sample of now and the one after it are paid when the latter is due."""
        entry = self._cadences.get(cadence)
        if entry is None or not entry.every or entry.income_s <= 0:
            return 1.0
        missing_s = 2 * entry.cost_s - entry.credit_s
        return max(1.0, missing_s / entry.income_s / entry.every)
