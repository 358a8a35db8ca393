"""The few words the two databases say differently."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

_ROWS_A_STATEMENT = 250

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


def insert_rows(
    connection: Connection, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert thousands of rows, many to a statement, as the driver takes them.

    A statement for each row would give the interpreter's lock away and wait for it thousands of
    times, all that while holding the writer up. The values must be what the driver knows.
    """
    for at in range(0, len(rows), _ROWS_A_STATEMENT):
        chunk = rows[at : at + _ROWS_A_STATEMENT]
        text = _insert_text(table, tuple(columns), len(chunk), connection.dialect.paramstyle)
        connection.exec_driver_sql(text, tuple(chain.from_iterable(chunk)))


@lru_cache(maxsize=512)
def _insert_text(table: str, columns: tuple[str, ...], rows: int, style: str) -> str:
    mark = "?" if style == "qmark" else "%s"
    row = f"({', '.join([mark] * len(columns))})"
    names = ", ".join(f'"{name}"' for name in columns)
    values = ", ".join([row] * rows)
    return f"INSERT INTO {table} ({names}) VALUES {values}"  # noqa: S608 - our own names
