"""Places messages go to."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.storage import tables
from monitor.storage.base import Channel
from monitor.storage.dialects import upsert

_FIELDS = [field.name for field in fields(Channel)]


class SqlChannels:
    """``base.Channels`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> list[Channel]:
        rows = self._connection.execute(sa.select(tables.channel).order_by(tables.channel.c.id))
        return [_to_channel(row) for row in rows]

    def get(self, channel: str) -> Channel | None:
        query = sa.select(tables.channel).where(tables.channel.c.id == channel)
        row = self._connection.execute(query).first()
        return None if row is None else _to_channel(row)

    def delete(self, channel: str) -> bool:
        statement = sa.delete(tables.channel).where(tables.channel.c.id == channel)
        return self._connection.execute(statement).rowcount == 1

    def save(self, channel: Channel) -> None:
        values = {name: getattr(channel, name) for name in _FIELDS}
        upsert(self._connection, tables.channel, values, key=("id",))

    def disable(self, channel: str, reason: str) -> None:
        self._connection.execute(
            sa.update(tables.channel)
            .where(tables.channel.c.id == channel)
            .values(enabled=False, disabled_reason=reason)
        )


def _to_channel(row: Row[Any]) -> Channel:
    return Channel(**{name: getattr(row, name) for name in _FIELDS})
