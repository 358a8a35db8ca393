"""A run in a process of its own that logs known values at a steady pace, through the real client.

The values are a function of the step alone, so that a test can say afterwards what must be stored
and which alerts must have been told. ``python -m tests.faults.steady_run SERVER SPOOL RUN STOP``:
goes on until the file STOP exists and the period is full, then ends the run.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

PERIOD = 200
WARM_UP = 200
PACE_S = 0.02
REPEATS = range(60, 90)
NAN_AT = 20


def repeat_share(step: int) -> float:
    """A loader that begins its shard again for thirty batches of every period."""
    return 1.0 if step > WARM_UP and step % PERIOD in REPEATS else 0.0


def loss(step: int) -> float:
    """A falling loss with a little ripple, and one NaN in every period."""
    if step > WARM_UP and step % PERIOD == NAN_AT:
        return math.nan
    return 2.0 + 3.0 / math.sqrt(step) + 0.01 * ((step * 7919) % 13 - 6)


def main(server: str, spool: str, run: str, stop: str) -> None:
    """Log until told to stop; the last line on stdout is the client's account as JSON."""
    from trainer_hooks import watch

    watched = watch(server=server, spool_dir=spool, run=run, name=run)
    step = 0
    while not (Path(stop).exists() and step % PERIOD == 0):
        step += 1
        watched.log({"repeat_share": repeat_share(step)})
        watched.step(loss=loss(step), step=step)
        time.sleep(PACE_S)
    watched.close(timeout_s=5.0)
    sys.stdout.write(json.dumps({"steps": step}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
