"""Paired tests of small samples, one-sided, exact where that is cheap. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

EXACT_N = 60
"""Up to this many pairs the distribution of the rank sum is counted out."""


def rank_sum_p(differences: Sequence[float]) -> float:
    """How likely the differences are this far above 0 by chance: Wilcoxon's signed-rank test.

    Zeros are left out; equal sizes share their ranks. 1.0 where nothing differs.
    """
    kept = [d for d in differences if d != 0 and math.isfinite(d)]
    if not kept:
        return 1.0
    doubled = _doubled_ranks([abs(d) for d in kept])
    above = sum(rank for rank, d in zip(doubled, kept, strict=True) if d > 0)
    return _exact(doubled, above) if len(kept) <= EXACT_N else _normal(doubled, above)


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the ranks, so that shared ones are whole numbers."""
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    ranks = [0] * len(sizes)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and sizes[order[end]] == sizes[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = start + 1 + end
        start = end
    return ranks


def _exact(doubled: Sequence[int], above: int) -> float:
    """The share of all sign patterns whose rank sum is at least ``above``."""
    counts = [1]
    for rank in doubled:
        wider = counts + [0] * rank
        for total, count in enumerate(counts):
            wider[total + rank] += count
        counts = wider
    return float(sum(counts[above:]) / 2.0 ** len(doubled))


def _normal(doubled: Sequence[int], above: int) -> float:
    mean = sum(doubled) / 2
    spread = math.sqrt(sum(rank * rank for rank in doubled)) / 2
    return 0.5 * math.erfc((above - 1 - mean) / spread / math.sqrt(2))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """P-values corrected for their number by Holm's method, by the same names."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    corrected: dict[str, float] = {}
    worst = 0.0
    for place, name in enumerate(ordered):
        worst = max(worst, min(1.0, (len(ordered) - place) * p_values[name]))
        corrected[name] = worst
    return corrected


def effect(differences: Sequence[float]) -> float:
    """Mean difference in standard deviations of the differences; infinite where they are all equal,
    0 where there are none.
    """
    if not differences:
        return 0.0
    mean = math.fsum(differences) / len(differences)
    if len(differences) < 2:
        return 0.0
    spread = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (len(differences) - 1))
    if spread == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / spread
