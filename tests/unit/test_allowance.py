"""Sampling in the loop keeps to its share of the wall time."""

import pytest

from trainer_hooks.loop.allowance import ANSWERS_SHARE, Allowance


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_at_most_a_thousandth_of_the_time_so_far():
    clock = Clock()
    allowance = Allowance(ANSWERS_SHARE, clock)
    spent = 0.0
    for second in range(1, 200_000):
        clock.now = float(second)
        if allowance.allows(lambda: 5.0):
            allowance.spent(4.0)
            spent += 4.0
        assert spent <= 0.001 * clock.now
    assert spent == pytest.approx(200.0, abs=8.0)


def test_it_says_how_long_it_waits():
    clock = Clock()
    allowance = Allowance(0.001, clock)
    clock.now = 1000.0
    assert not allowance.allows(lambda: 5.0)
    assert allowance.wait_s() == pytest.approx(4000.0)


def test_without_a_bound_nothing_is_estimated():
    def fail():
        raise AssertionError

    assert Allowance(None).allows(fail)
