"""Host time of one ``Watch.step`` with 300 logged floats, whatever the server does."""

from __future__ import annotations

import queue
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.parts.server import serving
from tests.faults.test_client_server_away import black_hole, free_port
from trainer_hooks import watch

VALUES = {f"mine/{i}": i / 7 for i in range(300)}
CALLS = 400
ROUNDS, CALLS_A_ROUND = 7, 40
PAUSE_S = 0.002
"""Between calls, as in a loop that also trains."""

Call = Callable[[int], object]


def timed(call: Call, calls: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Microseconds of each call."""
    took = []
    for step in range(calls):
        began = clock()
        call(step)
        took.append(1e6 * (clock() - began))
        time.sleep(PAUSE_S)
    return took


def p99(took: list[float]) -> float:
    """The value that one call in a hundred exceeds."""
    return sorted(took)[int(len(took) * 0.99)]


@contextmanager
def served() -> Iterator[str]:
    """The address of a server in a process of its own: its threads share no lock with the loop."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        yield f"http://{server.host}:{server.port}"


@contextmanager
def watched(url: str) -> Iterator[Call]:
    """A call that logs 300 values and ends a step."""
    with tempfile.TemporaryDirectory() as folder:
        w: Any = watch(server=url, spool_dir=folder)

        def call(step: int) -> None:
            w.log(VALUES)
            w.step(loss=1.0 / (step + 1), tokens=1000)

        yield call
        w.close(timeout_s=1.0)


def step_calls() -> dict[str, float]:
    """The server up, dead and mute; a bare queue is the floor."""
    bare: queue.SimpleQueue[dict[str, float]] = queue.SimpleQueue()
    floor = timed(lambda _step: bare.put(dict(VALUES)), CALLS)
    with served() as url, watched(url) as call:
        up = timed(call, CALLS)
    with watched(f"http://127.0.0.1:{free_port()}") as call:
        dead = timed(call, CALLS)
    with black_hole() as url, watched(url) as call:
        mute = timed(call, CALLS)
    return {
        "step_call_us": statistics.median(up),
        "queue_floor_us": statistics.median(floor),
        "step_p99_us": p99(up),
        "step_p99_us_dead_server": p99(dead),
        "step_p99_us_mute_server": p99(mute),
    }


def against(peers: Mapping[str, Call]) -> dict[str, float]:
    """Median microseconds of a call of each, ours among them, turn and turn about; then the same
    by the thread's processor time, under ``<name>_cpu``."""
    with served() as url, watched(url) as ours:
        calls = {"ours": ours, **peers}
        took: dict[str, list[float]] = {name: [] for name in calls}
        took |= {f"{name}_cpu": [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                took[name] += timed(call, CALLS_A_ROUND)
                took[f"{name}_cpu"] += timed(call, CALLS_A_ROUND, time.thread_time)
    return {name: statistics.median(found) for name, found in took.items()}
