"""What one ``step()`` with 300 logged floats costs the training thread.

``python -m tests.bench.hooks``: with the server up, dead and mute; the last line is JSON.
Compared with a bare queue in the same run: ratios travel between machines, milliseconds do not.
"""

from __future__ import annotations

import json
import queue
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tests.faults.test_client_server_away import black_hole, free_port
from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch

VALUES = 300
STEPS = 1500
PAUSE_S = 0.002
"""Between steps, as in a loop that also trains."""


def measure(call: Callable[[int], object], steps: int = STEPS) -> tuple[float, float]:
    """Median and p99 of a call, in milliseconds."""
    took = []
    for step in range(1, steps + 1):
        began = time.perf_counter()
        call(step)
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(PAUSE_S)
    return statistics.median(took), sorted(took)[int(len(took) * 0.99)]


def measure_queue(values: dict[str, float]) -> tuple[float, float]:
    """The floor: the same values, copied into a queue that nobody reads."""
    bare: queue.SimpleQueue[dict[str, float]] = queue.SimpleQueue()
    return measure(lambda _step: bare.put(dict(values)))


def measure_watch(url: str, values: dict[str, float]) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        w: Any = watch(server=url, spool_dir=folder)

        def call(step: int) -> None:
            w.log(values)
            w.step(loss=1.0 / step, tokens=1000)

        found = measure(call)
        w.close(timeout_s=1.0)
        assert w._link.client.tally().adds_up()
        return found


def main() -> None:
    values = {f"mine/{i}": i / 7 for i in range(VALUES)}
    found = {"queue": measure_queue(values)}
    with StubServer() as server:
        found["up"] = measure_watch(server.url, values)
    found["dead"] = measure_watch(f"http://127.0.0.1:{free_port()}", values)
    with black_hole() as url:
        found["mute"] = measure_watch(url, values)
    plain = {
        f"{name}_{what}_ms": round(value, 4)
        for name, pair in found.items()
        for what, value in zip(("median", "p99"), pair, strict=True)
    }
    plain["up_over_queue"] = round(found["up"][0] / found["queue"][0], 2)
    sys.stdout.write(json.dumps(plain) + "\n")


if __name__ == "__main__":
    main()
