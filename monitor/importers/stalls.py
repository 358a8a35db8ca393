"""Stalls of the loader, told by a log that has the wait for each batch: as our own hooks would."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from monitor.importers.rows import Row
from trainer_hooks.wire import Event

USUAL_TIMES = 5.0
STEP_SHARE = 0.5
SHORTEST_S = 0.05
FEWEST_WAITS = 20


def stalls(rows: list[Row]) -> Iterator[Event]:
    """A stall is a wait above 5 times the median wait, half the median step, and 50 ms.

    Medians are those of the whole log; rows must have their steps and times.
    """
    waits = [(row, wait) for row in rows if (wait := _finite(row, "data_wait_s")) is not None]
    if len(waits) < FEWEST_WAITS:
        return
    usual = median(wait for _, wait in waits)
    spans = [span for row in rows if (span := _finite(row, "step_s")) is not None]
    step_s = median(spans) if spans else 0.0
    least = max(USUAL_TIMES * usual, STEP_SHARE * step_s, SHORTEST_S)
    for row, wait in waits:
        if wait > least and row.step is not None:
            at = row.axes.get("time_s", 0.0)
            yield Event("data_stall", row.step, at, data={"wait_s": wait, "usual_s": usual})


def _finite(row: Row, key: str) -> float | None:
    value = row.values.get(key)
    return value if value is not None and math.isfinite(value) else None
