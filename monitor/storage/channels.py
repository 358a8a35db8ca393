"""Places messages go to."""

from __future__ import annotations

from dataclasses import fields

import sqlalchemy as sa
from sqlalchemy.engine import Connection

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
        return [Channel(**{name: getattr(row, name) for name in _FIELDS}) for row in rows]

    def save(self, channel: Channel) -> None:
        values = {name: getattr(channel, name) for name in _FIELDS}
        upsert(self._connection, tables.channel, values, key=("id",))

    def disable(self, channel: str, reason: str) -> None:
        self._connection.execute(
            sa.update(tables.channel)
            .where(tables.channel.c.id == channel)
            .values(enabled=False, disabled_reason=reason)
        )
