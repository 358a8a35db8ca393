"""Parameters of detectors that people have set."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from monitor.domain.tuning import Tuning
from monitor.storage import tables
from monitor.storage.dialects import upsert

_TUNING = tables.tuning.c


class SqlTunings:
    """``base.Tunings`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> dict[str, Tuning]:
        query = sa.select(_TUNING.detector, _TUNING.params, _TUNING.changed_at, _TUNING.by)
        rows = self._connection.execute(query.order_by(_TUNING.detector))
        return {name: Tuning(name, params, at, by) for name, params, at, by in rows}

    def save(self, tuning: Tuning) -> None:
        if not tuning.params:
            statement = sa.delete(tables.tuning).where(_TUNING.detector == tuning.detector)
            self._connection.execute(statement)
            return
        values = {
            "detector": tuning.detector,
            "params": tuning.params,
            "changed_at": tuning.changed_at,
            "by": tuning.by,
        }
        upsert(self._connection, tables.tuning, values, key=("detector",))
