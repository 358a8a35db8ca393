"""Workers: woken, retried later each time, stopped in time."""

from __future__ import annotations

import itertools
import logging
import threading
import time

import pytest

from monitor.services.workers import Supervisor, Worker


def until(holds: threading.Event) -> None:
    assert holds.wait(5)


def test_a_wake_up_does_not_wait_for_the_interval() -> None:
    done = threading.Event()
    first = threading.Event()

    def work() -> None:
        (done if first.is_set() else first).set()

    worker = Worker("w", work, interval_s=60, follows_log=True)
    supervisor = Supervisor([worker])
    supervisor.start()
    until(first)
    supervisor.wake("r", 1)
    until(done)
    assert supervisor.stop() == []


def test_more_work_is_done_at_once_and_none_is_lost_while_working() -> None:
    rounds: list[int] = []
    done = threading.Event()

    def work() -> bool:
        rounds.append(1)
        if len(rounds) == 5:
            done.set()
        return len(rounds) < 5

    worker = Worker("w", work, interval_s=60)
    worker.start()
    until(done)
    worker.stop()
    assert worker.join(5)
    assert len(rounds) == 5


def test_a_failure_is_told_and_tried_again_later_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times: list[float] = []
    done = threading.Event()

    def work() -> None:
        times.append(time.monotonic())
        if len(times) < 3:
            raise RuntimeError("away")
        done.set()

    worker = Worker("w", work, interval_s=60)
    with caplog.at_level(logging.ERROR):
        worker.start()
        worker.wake()
        until(done)
        worker.stop()
        assert worker.join(5)
    assert times[1] - times[0] >= 0.2
    assert times[2] - times[1] >= 0.4
    assert worker.health().failures == 0
    assert sum("w failed" in record.message for record in caplog.records) == 2


def test_one_that_does_not_stop_is_named() -> None:
    free = threading.Event()
    worker = Worker("stuck", lambda: free.wait(20), interval_s=60)
    supervisor = Supervisor([worker])
    supervisor.start()
    began = time.monotonic()
    assert supervisor.stop(timeout_s=0.3) == ["stuck"]
    assert time.monotonic() - began < 2
    free.set()
    assert worker.join(5)


def test_under_pressure_a_worker_rests_longer_than_it_works() -> None:
    ticks: list[float] = []
    pressed = threading.Event()
    pressed.set()
    done = threading.Event()

    def work() -> bool:
        ticks.append(time.monotonic())
        time.sleep(0.02)
        if len(ticks) == 4:
            done.set()
        return True

    worker = Worker("w", work, interval_s=60, pressed=pressed.is_set)
    worker.start()
    until(done)
    pressed.clear()
    worker.stop()
    assert worker.join(5)
    assert min(b - a for a, b in itertools.pairwise(ticks[:4])) >= 0.02 * 4 * 0.9
