"""How fast batches are stored durably, and what a point weighs at rest.

    python -m tests.bench.store [--points 2000000] [--url URL] [--workers 4]

Batches of about 1,000 values of 333 series, three steps each, hook-like values (float32) with a
fresh random mantissa: nothing to gain by compression. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from monitor.clock import wall_s
from monitor.services.ingest import Ingest
from monitor.services.sealing import Sealer
from monitor.storage.base import Snapshot
from monitor.storage.engine import open_database
from monitor.storage.migrate import upgrade

SERIES, STEPS = 333, 3


def bodies(run: str, count: int, source: str) -> list[bytes]:
    """``count`` batches of one source."""
    rng = np.random.default_rng(0)
    now = time.time()
    made: list[bytes] = []
    for seq in range(count):
        steps = list(range(seq * STEPS, (seq + 1) * STEPS))
        jitter = rng.normal(0, 0.003, STEPS)
        values = rng.normal(1.0, 0.1, (SERIES, STEPS)).astype(np.float32).astype(float)
        frame = {
            "steps": steps,
            "times": [now + s * 0.09 + float(j) for s, j in zip(steps, jitter, strict=True)],
            "columns": {f"grad_norm/layer{i}": values[i].tolist() for i in range(SERIES)},
        }
        head = {"v": 1, "run": run, "attempt": "a", "source": source, "seq": seq}
        made.append(json.dumps(head | {"sent_at": now, "frames": [frame]}).encode())
    return made


def measure(url: str, points: int, workers: int) -> dict[str, float]:
    """Points a second into the log with the sealer at work, then bytes at rest."""
    database = open_database(url)
    upgrade(database)
    before = database.size_bytes()
    ingest, sealer = Ingest(database, wall_s), Sealer(database, wall_s, "bench")
    runs = [f"bench-{i}" for i in range(workers)]
    each = points // (SERIES * STEPS) // workers
    work = {run: bodies(run, each, "s") for run in runs}
    stop = threading.Event()
    seals: list[float] = []

    def seal() -> None:
        while not stop.is_set():
            for run in runs:
                began = time.perf_counter()
                if sealer.seal(run).points:
                    seals.append(time.perf_counter() - began)
                drop(database, run)
            stop.wait(0.2)

    thread = threading.Thread(target=seal)
    thread.start()
    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda run: [ingest.accept(body) for body in work[run]], runs))
    took_s = time.perf_counter() - began
    stop.set()
    thread.join()
    written = catch_up(database, sealer, runs)
    total = each * workers * SERIES * STEPS
    size = settled_size(url, database) - before
    database.close()
    return {
        "points": total,
        "points_per_s": round(total / took_s),
        "seal_median_s": round(float(np.median(seals or [0])), 4),
        "seal_max_s": round(max(seals, default=0.0), 4),
        "catch_up_s": round(written[0], 3),
        "bytes_per_point": round(size / total, 2),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def drop(database, run: str) -> None:
    """Stand in for detection: a snapshot at the head lets the log go."""

    def move(work) -> None:
        work.readers.save_snapshot(Snapshot(run, "detection", work.log.head(run), {}))

    database.write(move)


def catch_up(database, sealer: Sealer, runs: list[str]) -> tuple[float, int]:
    began = time.perf_counter()
    written = 0
    for run in runs:
        drop(database, run)
        sealed = sealer.seal(run)
        while sealed.more:
            written += sealed.written
            sealed = sealer.seal(run)
        sealer.seal(run)
    return time.perf_counter() - began, written


def settled_size(url: str, database) -> int:
    """The size once freed pages have been given back (the log is gone by then)."""
    with database.migrating() as connection:
        connection.exec_driver_sql("SELECT 1")
    engine = database._writer_engine if url.startswith("sqlite") else database._engine
    raw = engine.raw_connection()
    try:
        if url.startswith("sqlite"):
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            raw.driver_connection.rollback()
            raw.driver_connection.autocommit = True
            raw.driver_connection.execute("VACUUM FULL")
            raw.driver_connection.autocommit = False
    finally:
        raw.close()
    return database.size_bytes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--url")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = args.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        result = measure(url, args.points, args.workers)
    sys.stdout.write(json.dumps({"bench": "store", "database": url.split(":")[0], **result}) + "\n")


if __name__ == "__main__":
    main()
