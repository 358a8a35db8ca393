"""A million events and no server: the memory stays small, and every value is accounted for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CODE = """
import json, sys, time
from trainer_hooks import watch
from trainer_hooks.post.frames import Row

def rss_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))

w = watch(server="http://127.0.0.1:9", run="r", spool_dir=sys.argv[1])
w.step(loss=1.0)
time.sleep(0.5)
before = rss_mib()
link = w._link
for step in range(2, 1_000_002):
    link.put(Row(link.attempt, step, float(step), {"loss/train": 1.0 / step}))
grown = rss_mib() - before
w.close()
tally = link.client.tally()
print(json.dumps({"grown_mib": grown, "adds_up": tally.adds_up(), "produced": tally.produced,
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
