"""What an alert has cost, from the store: one count for its text, the API and the pages."""

from __future__ import annotations

import math

from monitor.domain.alert import Alert
from monitor.domain.log import LogEntry
from monitor.domain.plan import Toll, checkpoints, toll
from monitor.storage.base import UnitOfWork

TOKENS_SEEN = "tokens_seen"
LOOK_BACK = 32
"""Entries of the log in which the newest count of tokens is looked for: batches come each second
and nearly all hold it."""


def toll_of(uow: UnitOfWork, alert: Alert) -> Toll:
    """The toll of an alert until now, or until it was resolved."""
    run = uow.runs.get(alert.run)
    if run is None:
        return toll(alert, None, (), ())
    saved = checkpoints(uow.events.phases(alert.run))
    attempts, alerts = uow.runs.attempts(alert.run), uow.alerts.of_run(alert.run)
    return toll(alert, run, attempts, saved, tokens_per_step(uow, alert.run), alerts)


def tokens_per_step(uow: UnitOfWork, run: str) -> float | None:
    """Tokens a step, over the run so far; None: it does not count them."""
    head = uow.log.head(run)
    for entry in reversed(uow.log.read(run, after=max(0, head - LOOK_BACK), limit=LOOK_BACK)):
        found = _seen(entry)
        if found is not None:
            return found
    return None


def _seen(entry: LogEntry) -> float | None:
    for frame in reversed(entry.frames):
        column = frame.columns.get(TOKENS_SEEN)
        if column is None:
            continue
        for row in reversed(range(len(frame.steps))):
            value = float(column.values[row])
            if (column.present is None or column.present[row]) and math.isfinite(value):
                return value / (int(frame.steps[row]) + 1)
    return None
