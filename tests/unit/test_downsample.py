"""Thinning keeps what must be seen."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.domain.downsample import MAX_MARKS, joined, of_points, thin
from monitor.domain.log import Points


def points(values) -> Points:
    array = np.asarray(values, np.float64)
    return Points(np.arange(len(array)), np.arange(len(array)) / 10.0, array)


@pytest.mark.parametrize("rows", [1, 2, 7, 100, 999, 1000])
@pytest.mark.parametrize("place", [0, 1, 499_999, 612_345, 999_999])
def test_a_spike_in_a_million_points_is_seen(rows: int, place: int) -> None:
    values = np.random.default_rng(0).normal(0, 1, 1_000_000)
    values[place] = 100.0
    thinned = thin(of_points(points(values)), rows)
    assert len(thinned) <= rows
    assert thinned.high.max() == 100.0
    assert thinned.low.min() == values.min()
    assert thinned.counts.sum() == 1_000_000
    assert thinned.steps[0] == 0


def test_means_are_weighted_by_what_rows_stand_for() -> None:
    once = thin(of_points(points(np.arange(1000.0))), 37)
    twice = thin(once, 5)
    assert np.average(twice.values, weights=twice.counts) == pytest.approx(499.5)


def test_non_finite_points_are_marked_and_leave_no_trace_in_the_envelope() -> None:
    values = np.zeros(10_000)
    values[[3, 5000]] = np.nan, np.inf
    values[9000:] = np.nan
    thinned = thin(of_points(points(values)), 10)
    assert {3, 5000} <= set(thinned.non_finite.tolist())
    assert len(thinned.non_finite) == MAX_MARKS
    assert np.isnan(thinned.high[-1])
    assert thinned.high[:-1].tolist() == [0.0] * 9


def test_a_mean_leaves_what_is_not_finite_out_and_says_how_many() -> None:
    thinned = thin(of_points(points([1.0, 2.0, np.nan, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])), 2)
    assert thinned.values.tolist() == pytest.approx([2.5, 7.0])
    assert list(zip(thinned.broken, thinned.counts, strict=True)) == [(1, 5), (0, 5)]
    again = thin(joined([thinned, of_points(points([np.inf]))]), 1)
    assert (again.broken.tolist(), again.counts.tolist()) == ([2], [11])
    assert again.values.tolist() == [pytest.approx(5.0)]


def test_huge_values_do_not_overflow() -> None:
    thinned = thin(of_points(points(np.full(100, 1.7e308))), 3)
    assert thinned.values == pytest.approx(1.7e308)


def test_few_rows_stay_as_they_are_and_parts_join_by_step() -> None:
    left, right = of_points(points([1.0, np.nan])), of_points(points([5.0]))
    whole = joined([right, left])
    assert whole.steps.tolist() == [0, 0, 1]
    assert whole.non_finite.tolist() == [1]
    assert thin(whole, 10).values.tolist()[:2] == [5.0, 1.0]
