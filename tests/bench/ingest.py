"""A burst of batches over HTTP into a real server that seals and judges meanwhile.

    python -m tests.bench.ingest [--points 4000000] [--runs 8] [--url URL]

The server is a process of its own on the same cores as the load. Every batch is on disk before it
is answered. After the burst the lag of both readers is read from /metrics until it is nought. The
last line is one JSON object; ``*_cpu_us`` are microseconds of processor time, which a busy machine
does not change much, where ``*_per_s`` are wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.bench.parts.load import POINTS, SERIES, Bodies, Connection, burst, variants
from tests.bench.parts.server import Server, serving

TRIALS = 20
CATCH_UP_S = 300.0


def lag(server: Server) -> dict[str, int]:
    """Entries each reader has still to work off."""
    with urllib.request.urlopen(f"http://{server.host}:{server.port}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'watchkeeper_reader_lag_entries\{reader="(\w+)"\} ([\d.]+)', text)
    return {reader: int(float(entries)) for reader, entries in found}


def caught_up(server: Server) -> dict[str, float]:
    """How far behind both readers are after a burst, and how long until they are not.

    The sealer leaves what is younger than 20 s or less than 256 entries in the log.
    """
    began, behind = time.perf_counter(), lag(server)
    found: dict[str, float] = {f"{reader}_lag_points": n * POINTS for reader, n in behind.items()}
    while time.perf_counter() - began < CATCH_UP_S:
        behind = lag(server)
        for reader, entries in behind.items():
            if not entries:
                found.setdefault(f"{reader}_caught_up_s", round(time.perf_counter() - began, 1))
        if not any(behind.values()):
            break
        time.sleep(0.5)
    return found


def floor_us() -> float:
    """Microseconds of processor time to understand a batch as JSON: nothing can be cheaper."""
    body = Bodies("floor", time.time(), variants(count=1)).batch(1)
    took: list[float] = []
    for _ in range(TRIALS):
        began = time.process_time()
        json.loads(body)
        took.append((time.process_time() - began) * 1e6)
    return statistics.median(took)


def measure(server: Server, points: int, runs: int) -> dict[str, object]:
    names = [f"burst-{i}" for i in range(runs)]
    each = max(1, points // POINTS // runs)
    Connection(server.host, server.port).close()
    server_cpu, load_cpu = server.cpu_s(), time.process_time()
    took_s, waits = burst(server.host, server.port, names, each)
    batches = each * runs
    burst_cpu = server.cpu_s() - server_cpu
    load_cpu = time.process_time() - load_cpu
    behind = caught_up(server)
    all_cpu = server.cpu_s() - server_cpu
    floor = floor_us()
    return {
        "points": batches * POINTS,
        "points_per_s": round(batches * POINTS / took_s),
        "server_cpu_us_per_batch": round(burst_cpu / batches * 1e6),
        "server_cpu_us_per_batch_caught_up": round(all_cpu / batches * 1e6),
        "load_cpu_us_per_batch": round(load_cpu / batches * 1e6),
        "json_cpu_us_per_batch": round(floor),
        "server_to_json": round(burst_cpu / batches * 1e6 / floor, 2),
        "wait_p50_ms": round(statistics.median(waits) * 1e3, 1),
        "wait_p99_ms": round(sorted(waits)[int(len(waits) * 0.99)] * 1e3, 1),
        "wait_max_ms": round(max(waits) * 1e3, 1),
        **behind,
        "peak_mib": server.peak_mib(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--url", help="a PostgreSQL database; without it SQLite in a new folder")
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), args.url) as server:
        found = measure(server, args.points, args.runs)
    head = {"bench": "ingest", "database": (args.url or "sqlite").split(":")[0], "series": SERIES}
    loads = {"load_before": round(load_before, 1), "load_after": round(os.getloadavg()[0], 1)}
    sys.stdout.write(json.dumps(head | found | loads) + "\n")


if __name__ == "__main__":
    main()
