"""What is demanded of single faults, beside the pooled figures: how soon, and in which unit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from tests.bench.parts.cases import FRESH_ZOO
from tests.bench.parts.scoring import Outcome

SPIKES = ("bloom176b spike", "bigscience 13b spike", "bigscience 104b divergence",
          "bigscience 104b spike", "bigscience 104b overflow")  # fmt: skip


def demands(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Figures by fault of the zoo, and those of the demands that are not about steps."""
    faults: dict[str, list[Outcome]] = {}
    for one in outcomes:
        if one.case.group == FRESH_ZOO and not one.case.is_sound:
            faults.setdefault(one.case.source.removeprefix(f"{FRESH_ZOO} "), []).append(one)
    spikes = [one.late_points for one in outcomes if one.case.group in SPIKES]
    plateaus = [one.late_points for one in outcomes if one.case.group == "frozen loss/heldout"]
    return {
        "by_fault": {name: _fault(runs) for name, runs in sorted(faults.items())},
        "spikes_median_points": _middle(spikes),
        "plateau_on_heldout_median_evaluations": _middle(plateaus),
        "overconfidence_while_top1_still_rises": [
            f"{one.case.name}: step {told.opened}, top-1 best at {one.top1_peak}"
            for one in faults.get("over_training", [])
            for told in one.told
            if told.detector == "overconfidence"
        ],
    }


def _fault(runs: Sequence[Outcome]) -> dict[str, Any]:
    hits = [(one, hit) for one in runs if (hit := one.caught) is not None]
    delays = [hit.opened - (one.case.onset or 0) for one, hit in hits]
    first = [
        min(told.opened for told in one.in_time) - (one.case.onset or 0)
        for one in runs
        if one.in_time
    ]
    return {"runs": len(runs), "caught": len(hits), "in_time": len(first),
            "delays_steps": delays, "delays_whatever_the_onset": first}  # fmt: skip


def _middle(points: Sequence[int | None]) -> float | None:
    found = [late for late in points if late is not None]
    return median(found) if found else None
