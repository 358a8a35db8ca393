"""From what was said of each case to the benchmark's figures.

False alarm: a warning or worse where nothing is wrong, or before anything is. Caught: an alert of a
detector listed for the fault, opened between the onset and its limit, its onset estimated within
10 % of what was logged of the run. Right cause: of all alerts of those detectors in time whose
fault has a nameable cause, those that rank it first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.bench.parts.cases import FRESH_ZOO, Case
from tests.bench.parts.zoo_truth import OF_THE_MACHINE
from tests.fixtures.traces import Told

ONSET_SLACK = 0.1
SECONDS_A_DAY = 86_400.0


@dataclass(slots=True)
class Outcome:
    """A case and what was said of it: ``others`` are alarm steps of baselines and other tools.

    ``first``, ``last``: logged steps. ``days``: the run's length at its own step time, or None.
    ``late_points``: points of the loss between the onset and the alert that caught it.
    ``top1_peak``: the step at which the probe's accuracy was best.
    """

    case: Case
    told: list[Told]
    first: int
    last: int
    days: float | None = None
    late_points: int | None = None
    top1_peak: int | None = None
    others: dict[str, list[int]] = field(default_factory=dict)

    @property
    def false(self) -> list[Told]:
        """Alarms where nothing was wrong."""
        return [one for one in self._early if not self._is_of_the_machine(one)]

    @property
    def of_the_machine(self) -> list[Told]:
        """Those of them that tell of the machine the zoo was trained on."""
        return [one for one in self._early if self._is_of_the_machine(one)]

    @property
    def _early(self) -> list[Told]:
        if self.case.healthy_steps == 0:
            return []
        onset = self.case.onset
        loud = [one for one in self.told if one.severity != "info"]
        return [one for one in loud if onset is None or one.opened < onset]

    def _is_of_the_machine(self, told: Told) -> bool:
        return self.case.source.startswith(f"{FRESH_ZOO} ") and told.detector in OF_THE_MACHINE

    @property
    def in_time(self) -> list[Told]:
        """Alerts of the fault's own detectors between the onset and the limit."""
        case = self.case
        if case.onset is None or case.expected is None:
            return []
        return [
            one
            for one in self.told
            if one.detector in case.expected.detectors and case.onset <= one.opened <= case.deadline
        ]

    @property
    def caught(self) -> Told | None:
        """The first that is in time and knows the onset."""
        right = [one for one in self.in_time if self.onset_off(one) <= ONSET_SLACK]
        return min(right, key=lambda one: one.opened) if right else None

    def onset_off(self, told: Told) -> float:
        """How far its onset is off, as a share of what was logged."""
        return abs(told.onset - (self.case.onset or 0)) / max(self.last - self.first, 1)


def upper_bound(alarms: int, confidence: float = 0.95) -> float:
    """Poisson: the rate whose chance of so few alarms is 5 %; 3.0 for none."""
    low, high = float(alarms), alarms + 10.0 + 4.0 * math.sqrt(alarms + 1.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        chance = math.exp(-middle) * sum(
            middle**k / math.factorial(k) for k in range(min(alarms, 150) + 1)
        )
        low, high = (middle, high) if chance > 1.0 - confidence else (low, middle)
    return high


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Ours, over these outcomes."""
    faults = [one for one in outcomes if not one.case.is_sound and one.case.expected is not None]
    caught = [(one, hit) for one in faults if (hit := one.caught) is not None]
    false = sum(len(one.false) for one in outcomes)
    steps = sum(one.case.healthy_steps for one in outcomes)
    return {
        "cases": len(outcomes),
        "healthy_steps": steps,
        "false_alarms": false,
        "false_alarms_critical": sum(a.severity == "critical" for o in outcomes for a in o.false),
        "of_the_machine": sum(len(one.of_the_machine) for one in outcomes),
        "false_alarms_per_10k": _per_10k(false, steps),
        # Two hundred alarms and more: the bound is the rate, for all that matters here.
        "upper_bound_95_per_10k": _per_10k(upper_bound(false) if false < 150 else false, steps),
        "false_alarms_per_run_day": _per_day(outcomes),
        "most_infos_in_a_sound_run": max(
            (sum(a.severity == "info" for a in o.told) for o in outcomes if o.case.is_sound),
            default=0,
        ),
        "faults": len(faults),
        "recall": _share(len(caught), len(faults)),
        "recall_where_it_shows": _share(
            sum(one.case.shows for one, _ in caught), sum(one.case.shows for one in faults)
        ),
        "recall_in_time": _share(sum(bool(one.in_time) for one in faults), len(faults)),
        "median_delay_steps": _median([hit.opened - (o.case.onset or 0) for o, hit in caught]),
        "right_cause_share": right_cause(faults),
        "misses": [one.case.name for one in faults if one.caught is None],
    }


def right_cause(faults: Sequence[Outcome]) -> float | None:
    """Of all alerts in time of faults whose cause can be named: the share that ranks it first."""
    right = [
        one.case.expected.is_right(told.cause)
        for one in faults
        if one.case.expected is not None and one.case.expected.cause
        for told in one.in_time
    ]
    return _share(sum(right), len(right))


def figures_of(name: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same of a baseline or another tool, where it could judge; its onset is not asked for."""
    asked = [one for one in outcomes if name in one.others]
    faults = [one for one in asked if not one.case.is_sound and one.case.expected is not None]
    hits, false = [], 0
    for one in asked:
        onset = one.case.onset
        if one.case.healthy_steps:
            false += sum(onset is None or step < onset for step in one.others[name])
    for one in faults:
        onset = one.case.onset or 0
        found = [step for step in one.others[name] if onset <= step <= one.case.deadline]
        hits += [min(found) - onset] if found else []
    steps = sum(one.case.healthy_steps for one in asked)
    return {
        "healthy_steps": steps,
        "false_alarms": false,
        "false_alarms_per_10k": _per_10k(false, steps),
        "false_alarms_per_10k_median_of_sources": _median(list(per_source(asked, name).values())),
        "recall": _share(len(hits), len(faults)),
        "median_delay_steps": _median(hits),
        "right_cause_share": None,
    }


def per_source(outcomes: Sequence[Outcome], other: str = "") -> dict[str, float]:
    """False alarms per 10,000 healthy steps by source."""
    rates: dict[str, float] = {}
    for source in dict.fromkeys(one.case.source for one in outcomes):
        mine = [one for one in outcomes if one.case.source == source and one.case.healthy_steps]
        steps = sum(one.case.healthy_steps for one in mine)
        if not steps:
            continue
        false = sum(
            sum(o.case.onset is None or s < o.case.onset for s in o.others[other])
            if other
            else len(o.false)
            for o in mine
        )
        rates[source] = 1e4 * false / steps
    return rates


def sources_table(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Healthy steps, false alarms and recall by source."""
    table = {}
    for source in sorted({one.case.source for one in outcomes}):
        mine = [one for one in outcomes if one.case.source == source]
        whole = figures(mine)
        kept = ("healthy_steps", "false_alarms", "false_alarms_per_10k", "faults", "recall")
        table[source] = {name: whole[name] for name in kept}
    return table


def groups_table(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Recall and delay by kind of case: recorded, zoo, and each splice."""
    table = {}
    for group in dict.fromkeys(one.case.group for one in outcomes):
        whole = figures([one for one in outcomes if one.case.group == group])
        kept = ("faults", "recall", "recall_where_it_shows", "recall_in_time",
                "median_delay_steps", "right_cause_share")  # fmt: skip
        table[group] = {name: whole[name] for name in kept}
    return table


def _per_day(outcomes: Sequence[Outcome]) -> float | None:
    timed = [one for one in outcomes if one.days]
    days = sum(one.days or 0.0 for one in timed)
    return sum(len(one.false) for one in timed) / days if days else None


def _per_10k(alarms: float, steps: int) -> float | None:
    return 1e4 * alarms / steps if steps else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
