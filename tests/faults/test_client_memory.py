"""A million events and no server: memory stays small, all is accounted for, the newest is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CODE = """
import gzip, json, pathlib, sys, time
from trainer_hooks import watch
from trainer_hooks.post.frames import Row
from trainer_hooks.post.segment import read_entries

def rss_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))

w = watch(server="http://127.0.0.1:9", run="r", spool_dir=sys.argv[1], spool_bytes=2_000_000)
w.step(loss=1.0)
time.sleep(0.5)
before = rss_mib()
link = w._link
for step in range(2, 1_000_002):
    link.put(Row(link.attempt, step, float(step), {"loss/train": 1.0 / step}))
    if step % 2_000 == 0:
        time.sleep(0.005)  # else chance decides what the sender's thread gets to see of it
grown = rss_mib() - before
w.close()
tally = link.client.tally()
steps = set()
for path in pathlib.Path(sys.argv[1]).rglob("*.seg"):
    for _, body in read_entries(path):
        for frame in json.loads(gzip.decompress(body))["frames"]:
            if "loss/train" in frame["columns"]:
                steps.update(frame["steps"])
newest = sum(step > 995_000 for step in steps)
# The first batches were attempted: they are whole for ever, and say nothing of thinning.
newer = sum(step > 800_000 for step in steps) / 200_000
older = sum(100_000 < step <= 500_000 for step in steps) / 400_000
print(json.dumps({"newest": newest, "newer": newer, "older": older,
                  "grown_mib": grown, "adds_up": tally.adds_up(), "produced": tally.produced,
                  "spooled": tally.spooled, "dropped": tally.dropped, "queued": tally.queued}))
"""


def test_a_million_events_without_a_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["grown_mib"] < 64, found
    assert found["adds_up"], found
    assert found["produced"] >= 1_000_000
    assert found["queued"] == 0
    assert found["produced"] == found["spooled"] + found["dropped"]
    assert found["dropped"] > 0
    assert found["newest"] >= 5_000  # whole
    assert found["newer"] > 3 * found["older"] > 0
