"""How fast a chart of a million points is read, far away and close by.

    python -m tests.bench.read [--points 1000000] [--url URL]

Medians of 15 reads of a sealed series. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from monitor.clock import wall_s
from monitor.domain.log import ColumnFrame, Matrix
from monitor.services.ingest import Ingest
from monitor.services.reading import Reading
from monitor.services.screening import Parsed, Refusals
from monitor.services.sealing import Sealer
from monitor.storage.base import Snapshot
from monitor.storage.engine import open_database
from monitor.storage.migrate import upgrade

BATCH = 20_000


def fill(database, points: int) -> None:
    """One sealed series of float32 values."""
    rng = np.random.default_rng(0)
    ingest, sealer = Ingest(database, wall_s), Sealer(database, wall_s, "bench")
    for seq, at in enumerate(range(0, points, BATCH)):
        steps = np.arange(at, at + BATCH)
        values = rng.normal(2.0, 0.1, (1, BATCH)).astype(np.float32).astype(np.float64)
        frame = ColumnFrame(steps, steps * 0.09, Matrix(("loss/train",), values))
        ingest.store(Parsed("bench", "a", "s", seq, 0.0, None, (frame,), (), BATCH, Refusals()))

    def move(work) -> None:
        work.readers.save_snapshot(Snapshot("bench", "detection", work.log.head("bench"), {}))

    database.write(move)
    while sealer.seal("bench").more:
        pass


def medians_ms(read: Callable[[], object], times: int = 15) -> tuple[float, float]:
    """Wall and processor time; the second hardly depends on what else the machine does."""
    read()
    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(times):
        began, used = time.perf_counter(), time.process_time()
        read()
        cpu.append((time.process_time() - used) * 1e3)
        wall.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(wall), 2), round(statistics.median(cpu), 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--url")
    args = parser.parse_args()
    result: dict[str, object] = {"bench": "read", "points": args.points}
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(args.url or f"sqlite:///{Path(folder) / 'bench.db'}")
        upgrade(database)
        fill(database, args.points)
        reading = Reading(database)
        middle = args.points // 2
        for name, width in (
            ("overview", args.points),
            ("half", middle),
            ("tenth", args.points // 10),
            ("zoom_20k", 20_000),
            ("zoom_2k", 2_000),
        ):
            first, last = middle - width // 2, middle + width // 2 - 1

            def read(first: int = first, last: int = last):
                return reading.points("bench", ["loss/train"], from_step=first, to_step=last)

            (curve,) = read().series
            result[f"{name}_ms"], result[f"{name}_cpu_ms"] = medians_ms(read)
            result[f"{name}_rows"] = len(curve.steps)
        result["database"] = database.dialect
        result["load_after"] = round(os.getloadavg()[0], 1)
        database.close()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
