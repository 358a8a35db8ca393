"""The few words the two databases say differently."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

Insert = sqlite.Insert | postgresql.Insert


def insert(connection: Connection, table: sa.Table) -> Insert:
    """An INSERT that knows ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def now_s(connection: Connection) -> float:
    """The database's own clock, seconds since 1970 UTC: the one clock all processes share."""
    if connection.dialect.name == "postgresql":
        query = "SELECT extract(epoch FROM clock_timestamp())::float8"
    else:
        query = "SELECT (julianday('now') - 2440587.5) * 86400.0"
    return float(connection.exec_driver_sql(query).scalar_one())


def upsert(
    connection: Connection, table: sa.Table, values: dict[str, Any], *, key: tuple[str, ...]
) -> None:
    """Insert the row, or replace the one that holds its key."""
    statement = insert(connection, table)
    changed = {name: statement.excluded[name] for name in values if name not in key}
    done = statement.on_conflict_do_update(index_elements=list(key), set_=changed)
    connection.execute(done, values)
