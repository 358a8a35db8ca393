"""Silences: spans in which nothing is told."""

from __future__ import annotations

from dataclasses import fields

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from monitor.domain.silence import Silence
from monitor.storage import tables
from monitor.storage.dialects import upsert

_FIELDS = [field.name for field in fields(Silence)]


class SqlSilences:
    """``base.Silences`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> list[Silence]:
        query = sa.select(tables.silence).order_by(tables.silence.c.created_at, tables.silence.c.id)
        found = []
        for row in self._connection.execute(query):
            values = {name: getattr(row, name) for name in _FIELDS}
            found.append(Silence(**{**values, "days": tuple(values["days"])}))
        return found

    def save(self, silence: Silence) -> None:
        values = {name: getattr(silence, name) for name in _FIELDS}
        upsert(self._connection, tables.silence, values | {"days": list(silence.days)}, key=("id",))

    def delete(self, silence: str) -> bool:
        statement = sa.delete(tables.silence).where(tables.silence.c.id == silence)
        return self._connection.execute(statement).rowcount == 1
