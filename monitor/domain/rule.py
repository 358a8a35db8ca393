"""Rules people write themselves: a threshold or a trend on any series. Pure.

A value beyond ``value`` is bad, one back beyond ``clear`` is calm, and in between nothing changes,
so that a series that wavers round its threshold opens one alert. What is not finite neither
satisfies nor resolves a rule: means and trends leave it out and say how many; where nothing else
came, the rule has no data and says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

RuleKind = Literal["threshold", "trend"]
Direction = Literal["above", "below"]
Reading = Literal["bad", "calm", "between", "no_data"]

NO_DATA_POINTS = 20
"""So many points in a row that are not finite are no data."""
PER_STEPS = 1000.0
"""Trends are changes per so many steps."""
LONGEST_WINDOW = 500
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    ``series``: a key, or a pattern with ``*``. A threshold rule looks at the mean of the last
    ``window`` points, a trend rule at their slope (change per 1,000 steps). ``clear``: where it is
    calm again (None: at ``value``). Opens at ``k`` bad of the last ``m``, pending for ``for_s``
    besides; closes after ``calm`` in a row, calm for ``calm_s`` besides (seconds of server time,
    its downtime left out). ``run`` (a pattern) and ``tag`` say for which runs (empty: all).
    """

    id: str
    name: str
    series: str
    kind: RuleKind = "threshold"
    direction: Direction = "above"
    value: float = 0.0
    clear: float | None = None
    window: int = 1
    k: int = 1
    m: int = 1
    calm: int = 3
    for_s: float = 0.0
    calm_s: float = 0.0
    severity: Literal["info", "warning", "critical"] = "warning"
    run: str = ""
    tag: str = ""
    enabled: bool = True

    def concerns(self, run: str, tags: Sequence[str]) -> bool:
        """Whether it holds for a run."""
        named = not self.run or fnmatchcase(run, self.run)
        return self.enabled and named and (not self.tag or self.tag in tags)

    @property
    def clears_at(self) -> float:
        return self.value if self.clear is None else self.clear

    @property
    def span(self) -> int:
        """How many points it must remember."""
        return max(self.window, NO_DATA_POINTS)


@dataclass(frozen=True, slots=True)
class Read:
    """What a rule makes of the last points. ``value``: their mean or slope, of ``used`` points;
    ``skipped`` more were not finite."""

    reading: Reading
    value: float | None
    used: int
    skipped: int


def read(rule: Rule, steps: Sequence[int], values: Sequence[float]) -> Read:
    """Judge the last points of one series, newest last."""
    window = values[-rule.window :]
    finite = [math.isfinite(value) for value in window]
    used = sum(finite)
    skipped = len(window) - used
    recent = values[-NO_DATA_POINTS:]
    if len(recent) == NO_DATA_POINTS and not any(map(math.isfinite, recent)):
        return Read("no_data", None, 0, len(recent))
    # A point that is not finite is no reading of its own; a window needs half of it to be numbers.
    if not finite[-1] or len(window) < rule.window or 2 * used < len(window):
        return Read("between", None, used, skipped)
    kept = [value for value, good in zip(window, finite, strict=True) if good]
    at = [step for step, good in zip(steps[-rule.window :], finite, strict=True) if good]
    value = _slope(at, kept) if rule.kind == "trend" else math.fsum(kept) / used
    return Read(_reading(rule, value), value, used, skipped)


def _reading(rule: Rule, value: float) -> Reading:
    sign = 1.0 if rule.direction == "above" else -1.0
    if sign * (value - rule.value) > 0.0:
        return "bad"
    return "calm" if sign * (value - rule.clears_at) <= 0.0 else "between"


def _slope(steps: Sequence[int], values: Sequence[float]) -> float:
    """Median of the slopes of all pairs (Theil and Sen), per 1,000 steps."""
    x_N, y_N = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    first, second = np.triu_indices(len(x_N), k=1)
    run_P = x_N[second] - x_N[first]
    apart_P = run_P > 0
    if not apart_P.any():
        return 0.0
    slopes = (y_N[second] - y_N[first])[apart_P] / run_P[apart_P]
    return float(np.median(slopes)) * PER_STEPS


def rule_from(plain: Mapping[str, Any]) -> Rule:
    """A rule from its JSON; fields nobody knows are left out."""
    known = {field.name for field in fields(Rule)}
    return Rule(**{name: value for name, value in plain.items() if name in known})


def slug(name: str) -> str:
    """An id made from a name: ``Loss too high!`` -> ``loss-too-high``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63] or "rule"


def problems(rule: Rule) -> list[str]:
    """What is wrong with it, a sentence each."""
    sign = 1.0 if rule.direction == "above" else -1.0
    finite = all(map(math.isfinite, (rule.value, rule.clears_at, rule.for_s, rule.calm_s)))
    checks = {
        "Its id is made of small letters, digits, - and _.": _ID.fullmatch(rule.id) is not None,
        "It needs a series.": bool(rule.series),
        "Its numbers must be finite.": finite,
        "It must clear on the good side of its value.": sign * (rule.value - rule.clears_at) >= 0.0,
        f"Its window is 1 to {LONGEST_WINDOW} points.": 1 <= rule.window <= LONGEST_WINDOW,
        "A trend needs a window of 5 points or more.": rule.kind != "trend" or rule.window >= 5,
        "It opens at k of m, with 1 <= k <= m <= 1000.": 1 <= rule.k <= rule.m <= 1000,
        "It closes after 1 to 1000 calm points.": 1 <= rule.calm <= 1000,
        "Its times are not negative.": rule.for_s >= 0.0 and rule.calm_s >= 0.0,
    }
    return [words for words, good in checks.items() if not good]
