"""Opening a database by its address."""

from __future__ import annotations

from monitor.storage.postgres import PostgresDatabase
from monitor.storage.sqlite import SqliteDatabase

_PREFIX = "postgresql+psycopg://"


def open_database(url: str) -> SqliteDatabase | PostgresDatabase:
    """Open ``sqlite:///path`` or ``postgresql://...``; tables are made by ``migrate.upgrade``.

    Raises:
        ValueError: the address is of another kind.
    """
    if url.startswith("sqlite:///"):
        return SqliteDatabase(url)
    for prefix in ("postgresql://", "postgres://", _PREFIX):
        if url.startswith(prefix):
            return PostgresDatabase(_PREFIX + url.removeprefix(prefix))
    raise ValueError("the database address must begin with sqlite:/// or postgresql://")
