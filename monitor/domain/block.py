"""Blocks: up to 4,096 consecutive points of a series, with a summary; buckets: 64 points.

Pure: how points are merged, cut and summed up. How they lie in bytes is storage's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.domain.log import Floats, Ints, Points

BLOCK_POINTS = 4096
BUCKET_POINTS = 64


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a stretch of points without opening it.

    ``low``, ``high`` and ``total`` are over finite values (None where there is none);
    ``non_finite`` counts the others.
    """

    first_step: int
    last_step: int
    first_time: float
    last_time: float
    count: int
    non_finite: int
    low: float | None
    high: float | None
    total: float | None


@dataclass(frozen=True, slots=True)
class Block:
    """A stored block. ``rank`` orders what overlaps: of two values for one step the higher wins.

    ``body`` is the compressed points, empty where only the summary was read.
    """

    series: int
    attempt: str
    summary: Summary
    rank: int
    tier: int = 0
    body: bytes = b""
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """64 points in one plain row. ``last`` is None and ``last_kind`` its name where not finite."""

    series: int
    attempt: str
    first_step: int
    first_time: float
    last_step: int
    count: int
    non_finite: int
    low: float | None
    high: float | None
    mean: float | None
    last: float | None
    last_kind: str = ""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Points [N] with the rank of each: the sequence number its source gave to its batch."""

    steps: Ints
    times: Floats
    values: Floats
    ranks: Ints

    def __len__(self) -> int:
        return len(self.steps)

    def part(self, begin: int, end: int) -> Ranked:
        """The points from index ``begin`` up to, not including, ``end``."""
        cut = slice(begin, end)
        return Ranked(self.steps[cut], self.times[cut], self.values[cut], self.ranks[cut])

    def points(self) -> Points:
        """Without the ranks."""
        return Points(self.steps, self.times, self.values)


def merge(parts: Sequence[Ranked]) -> Ranked:
    """All points of the parts by strictly rising step; of two for one step the higher rank wins.

    Of equal ranks the later part wins, and in a part the later point.
    """
    whole = parts[0] if len(parts) == 1 else _concatenate(parts)
    if len(whole) < 2 or bool((np.diff(whole.steps) > 0).all()):
        return whole
    order = np.lexsort((whole.ranks, whole.steps))  # stable: equal ranks keep their order
    steps = whole.steps[order]
    last_of_step = np.append(steps[1:] != steps[:-1], True)
    kept = order[last_of_step]
    return Ranked(steps[last_of_step], whole.times[kept], whole.values[kept], whole.ranks[kept])


def _concatenate(parts: Sequence[Ranked]) -> Ranked:
    if not parts:
        empty = np.empty(0, np.int64)
        return Ranked(empty, np.empty(0), np.empty(0), empty)
    return Ranked(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.ranks for part in parts]),
    )


def cut(points: Ranked, size: int = BLOCK_POINTS) -> list[Ranked]:
    """Stretches of ``size`` points, the last one shorter."""
    return [points.part(at, min(at + size, len(points))) for at in range(0, len(points), size)]


def summarise(points: Ranked) -> Summary:
    """The summary of at least one point."""
    finite = points.values[np.isfinite(points.values)]
    return Summary(
        first_step=int(points.steps[0]),
        last_step=int(points.steps[-1]),
        first_time=float(points.times[0]),
        last_time=float(points.times[-1]),
        count=len(points),
        non_finite=len(points) - len(finite),
        low=float(finite.min()) if len(finite) else None,
        high=float(finite.max()) if len(finite) else None,
        total=_total(finite),
    )


def _total(finite: Floats) -> float | None:
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(finite.sum())
    return total if len(finite) and np.isfinite(total) else None


def buckets_of(series: int, attempt: str, points: Ranked) -> list[Bucket]:
    """One bucket for each 64 points from the first on; the last may hold fewer."""
    if not len(points):
        return []
    starts = np.arange(0, len(points), BUCKET_POINTS)
    ends = np.append(starts[1:], len(points))
    finite = np.isfinite(points.values)
    counts = ends - starts
    good = np.add.reduceat(finite.astype(np.int64), starts)
    low = np.minimum.reduceat(np.where(finite, points.values, np.inf), starts)
    high = np.maximum.reduceat(np.where(finite, points.values, -np.inf), starts)
    shares = np.where(finite, points.values, 0.0) / np.repeat(np.maximum(good, 1), counts)
    mean = np.add.reduceat(shares, starts)  # each divided first: the sum may overflow
    rows = zip(
        points.steps[starts].tolist(),
        points.times[starts].tolist(),
        points.steps[ends - 1].tolist(),
        counts.tolist(),
        good.tolist(),
        low.tolist(),
        high.tolist(),
        mean.tolist(),
        points.values[ends - 1].tolist(),
        strict=True,
    )
    return [_bucket(series, attempt, row) for row in rows]


def _bucket(
    series: int,
    attempt: str,
    row: tuple[int, float, int, int, int, float, float, float, float],
) -> Bucket:
    first_step, first_time, last_step, count, good, low, high, mean, last = row
    kind = kind_of(last)
    return Bucket(
        series=series,
        attempt=attempt,
        first_step=first_step,
        first_time=first_time,
        last_step=last_step,
        count=count,
        non_finite=count - good,
        low=low if good else None,
        high=high if good else None,
        mean=mean if good else None,
        last=None if kind else last,
        last_kind=kind,
    )


def kind_of(value: float) -> str:
    """The name of a number that is not finite; empty for one that is.

    >>> [kind_of(float(text)) for text in ("1", "nan", "inf", "-inf")]
    ['', 'nan', 'inf', '-inf']
    """
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return ""


TIER_POINTS = (BUCKET_POINTS, 1024, BLOCK_POINTS)
"""A block of tier t holds fewer points than ``TIER_POINTS[t]``; those of the last are full."""
FULL_TIER = len(TIER_POINTS)
PATCH_TIER = -1
"""Late points over a range that is already sealed; merged on read, compacted soon."""


def tier_of(count: int) -> int:
    """The tier of a block of ``count`` points: each point is rewritten once a tier, at most."""
    return sum(count >= bound for bound in TIER_POINTS)


def absorbed(tail: Sequence[int], new: int) -> int:
    """How many of the last blocks of a tail a new block should be merged with.

    ``tail`` [K] are the counts of the open blocks from old to new, ``new`` that of the points to
    come. A tier's blocks are merged when together they fill the next one, so a point is written
    once when it comes and at most once for each tier it rises: amplification stays below four.
    """
    if new >= BLOCK_POINTS:
        return len(tail)
    best = 0
    for tier, bound in enumerate(TIER_POINTS):
        total, depth = new, 0
        for count in reversed(tail):
            if tier_of(count) > tier:
                break
            total += count
            depth += 1
        if total >= bound:
            best = max(best, depth)
    return best


def by_steps(points: Ranked, first: int | None, last: int | None) -> Ranked:
    """The points from step ``first`` to step ``last``, both included; None: no bound."""
    begin = 0 if first is None else int(np.searchsorted(points.steps, first, "left"))
    end = len(points) if last is None else int(np.searchsorted(points.steps, last, "right"))
    return points.part(begin, end)


def total_count(blocks: Iterable[Block]) -> int:
    """Points in blocks, by their summaries."""
    return sum(block.summary.count for block in blocks)
