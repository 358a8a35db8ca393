"""Blocks: up to 4,096 consecutive points of a series, with a summary; buckets: 64 points."""

from __future__ import annotations

from dataclasses import dataclass

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
