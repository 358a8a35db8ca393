"""A spool that is full, a disk that is full: what is lost is counted, and the rest arrives."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from tests.faults.test_client_server_away import free_port, tally_of
from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch
from trainer_hooks.spool import find_leftovers


def test_a_full_spool_thins_old_rows_and_tells_the_server_later(tmp_path: Path) -> None:
    port = free_port()
    w = watch(server=f"http://127.0.0.1:{port}", spool_dir=tmp_path, spool_bytes=300_000)
    steps = 9_000
    for step in range(1, steps + 1):
        w.step(loss=math.sin(step))
        w.log({f"mine/{i}": math.sin(step * i) for i in range(5)})
        if step % 300 == 0:
            time.sleep(0.25)
    time.sleep(0.3)
    tally = tally_of(w)
    assert tally.dropped > 0
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*.seg"))
    assert on_disk <= 300_000 + 1_000_000 // 8
    with StubServer(port) as server:
        w.close()
        kept = server.received.series("loss/train")
        beat = server.received.records("heartbeat")[-1]
    tally = tally_of(w)
    assert tally.produced == tally.stored + tally.dropped
    assert (beat["dropped"], beat["stored"]) == (tally.dropped, tally.stored)
    newest = sum(step > steps - 500 for step in kept)
    oldest = sum(step <= 1500 for step in kept)
    assert newest == 500
    assert 0 < oldest < 1500
    assert find_leftovers(tmp_path) == []


def test_a_full_disk_is_waited_for_in_memory_without_a_restart(tmp_path: Path) -> None:
    code = """
    import json, resource, signal, sys, time
    from trainer_hooks import watch

    w = watch(server="http://127.0.0.1:9", run="r", spool_dir=sys.argv[1])
    for step in range(1, 51):
        w.step(loss=1.0)
    time.sleep(0.6)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))  # as good as a full disk
    for step in range(51, 101):
        w.step(loss=1.0)
        time.sleep(0.02)
    spool = w._link.client._outbox.spool
    full, segments = bool(spool.problem), len(spool._segments)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for step in range(101, 151):
        w.step(loss=1.0)
    time.sleep(0.5)
    again = spool.problem
    w.close(timeout_s=2)
    t = w._link.client.tally()
    print(json.dumps({"full": full, "segments": segments, "again": again, "sum": t.adds_up(),
                      "kept": t.spooled == t.produced, "memory": spool._memory_bytes}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["full"]
    assert found["segments"] <= 2
    assert found == found | {"again": "", "sum": True, "kept": True, "memory": 0}
