"""Merging, cutting and summing up points; when small blocks are merged."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.domain.block import (
    BLOCK_POINTS,
    BUCKET_POINTS,
    Ranked,
    absorbed,
    buckets_of,
    by_steps,
    cut,
    kind_of,
    merge,
    summarise,
    tier_of,
)
from monitor.storage.log import Held


def ranked(values, steps=None, ranks=None) -> Ranked:
    count = len(values)
    return Ranked(
        np.arange(count) if steps is None else np.array(steps, np.int64),
        np.arange(count, dtype=np.float64),
        np.array(values, np.float64),
        np.zeros(count, np.int64) if ranks is None else np.array(ranks, np.int64),
    )


def test_merge_orders_by_step_and_lets_the_higher_rank_win() -> None:
    merged = merge([ranked([1, 2], [5, 3], [9, 9]), ranked([10, 20, 30], [5, 4, 3], [8, 8, 10])])
    assert merged.steps.tolist() == [3, 4, 5]
    assert merged.values.tolist() == [30, 20, 1]


def test_nothing_merged_is_nothing() -> None:
    assert len(merge([])) == 0


def test_a_summary_leaves_out_what_is_not_finite_and_counts_it() -> None:
    summary = summarise(ranked([1.0, np.nan, np.inf, -3.0]))
    assert (summary.count, summary.non_finite) == (4, 2)
    assert (summary.low, summary.high, summary.total) == (-3.0, 1.0, -2.0)
    nothing = summarise(ranked([np.nan]))
    assert (nothing.low, nothing.high, nothing.total) == (None, None, None)


def test_sums_too_large_for_a_float_do_not_become_infinity() -> None:
    huge = ranked([1.7e308] * 4)
    assert summarise(huge).total is None
    (bucket,) = buckets_of(1, "a", huge)
    assert bucket.mean == pytest.approx(1.7e308)


def test_buckets_hold_64_points_and_name_a_last_value_that_is_not_finite() -> None:
    values = np.arange(150.0)
    values[63], values[149] = np.nan, -np.inf
    first, second, third = buckets_of(3, "a", ranked(values))
    assert (first.count, second.count, third.count) == (BUCKET_POINTS, BUCKET_POINTS, 22)
    assert (first.last, first.last_kind, first.non_finite) == (None, "nan", 1)
    assert (second.first_step, second.last_step, second.last) == (64, 127, 127.0)
    assert (third.last_kind, third.high) == ("-inf", 148.0)
    assert first.mean == pytest.approx(np.arange(63).mean())
    assert buckets_of(3, "a", ranked([])) == []


def test_cut_and_by_steps() -> None:
    pieces = cut(ranked(np.arange(10_000)))
    assert [len(piece) for piece in pieces] == [4096, 4096, 1808]
    assert by_steps(pieces[1], 5000, 5002).steps.tolist() == [5000, 5001, 5002]
    assert len(by_steps(pieces[1], None, None)) == 4096


@pytest.mark.parametrize(
    ("tail", "new", "depth"),
    [
        ([], 10, 0),
        ([10] * 5, 10, 0),
        ([10] * 5, 14, 5),
        ([4000, 10, 10], 44, 2),
        ([4000, 100], 10, 2),
        ([2000, 100], 10, 0),
        ([500, 600], 10, 2),
        ([3000, 900, 60], 3, 0),
        ([3000, 900, 60], 4, 1),
        ([100], BLOCK_POINTS, 1),
    ],
)
def test_small_blocks_are_merged_when_they_fill_the_next_size(tail, new, depth) -> None:
    assert absorbed(tail, new) == depth


@pytest.mark.parametrize("size", [1, 3, 17, 63, 64, 100, 500, 1000, 1023, 1500, 4095])
def test_a_point_is_written_at_most_four_times(size: int) -> None:
    tail: list[int] = []
    written = total = 0
    for _ in range(max(20, 40_000 // size)):
        depth = absorbed(tail, size)
        merged = size + sum(tail[len(tail) - depth :])
        del tail[len(tail) - depth :]
        written += merged
        total += size
        rest = merged % BLOCK_POINTS if merged >= BLOCK_POINTS else merged
        if rest:
            tail.append(rest)
        assert len(tail) < 200
    assert written <= 4 * total


def test_tiers_and_kinds() -> None:
    assert [tier_of(n) for n in (1, 63, 64, 1023, 1024, 4095, 4096)] == [0, 0, 1, 1, 2, 2, 3]
    assert kind_of(5e-324) == ""


def test_held_numbers_close_their_gaps() -> None:
    held = Held(-1, ())
    for seq in (3, 1, 0, 7, 5, 6):
        assert not held.holds(seq)
        held = held.add(seq)
        assert held.holds(seq)
    assert held == Held(1, ((3, 3), (5, 7)))
    assert held.add(2) == Held(3, ((5, 7),))
