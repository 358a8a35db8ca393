"""Waits and stalls on a clock of the test's own: a long run with one pause in it."""

from __future__ import annotations

import itertools
from statistics import median

import pytest

from trainer_hooks import data
from trainer_hooks.data import TimedLoader, WaitMeter


def test_one_pause_in_a_thousand_steps_is_one_stall_with_its_step() -> None:
    meter = WaitMeter()
    waits: dict[int, float] = {}
    stalls = {}
    for step in range(1, 1001):
        wait_s = 2.0 if step == 700 else 0.001
        meter.waited(wait_s)
        waited_s, _, stall = meter.end_step(0.010 + wait_s)
        waits[step] = waited_s
        if stall is not None:
            stalls[step] = stall
    assert max(waits, key=waits.__getitem__) == 700
    assert max(waits.values()) >= 2.0
    assert median(waits.values()) == 0.001
    assert list(stalls) == [700]
    assert (stalls[700].wait_s, stalls[700].usual_s) == (2.0, 0.001)


def test_a_slow_loaders_share_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 ms of loading and 10 ms of work; waiting of the device inside the step does not count."""
    now = itertools.count()
    clock = [0.0]

    def loader() -> object:
        for _ in now:
            clock[0] += 0.030
            yield 1

    monkeypatch.setattr(data.time, "perf_counter", lambda: clock[0])
    meter = WaitMeter()
    timed = TimedLoader(loader(), begin=lambda: None, waited=meter.waited, served=lambda _: None)
    shares = []
    ended = None
    for _, _ in zip(range(200), timed, strict=False):
        clock[0] += 0.010
        wait_s, share, stall = meter.end_step(None if ended is None else clock[0] - ended)
        ended = clock[0]
        assert wait_s == pytest.approx(0.030)
        assert stall is None
        shares.append(share)
    assert shares[-1] == pytest.approx(0.75)


def test_work_of_a_device_is_no_wait_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader is ready; what the loop waits for between two batches is the device."""
    clock = [0.0]
    monkeypatch.setattr(data.time, "perf_counter", lambda: clock[0])
    meter = WaitMeter()
    timed = TimedLoader(range(50), begin=lambda: None, waited=meter.waited, served=lambda _: None)
    for _ in timed:
        clock[0] += 0.050
        wait_s, share, stall = meter.end_step(0.050)
        assert (wait_s, share, stall) == (0.0, 0.0, None)
