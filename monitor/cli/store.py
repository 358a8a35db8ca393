"""Opening the store of the settings, for commands that work on it without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from monitor.settings import Settings
from monitor.storage.base import Database


@contextmanager
def opened_store(settings: Settings) -> Iterator[Database]:
    """The database, brought to this program's schema unless the settings say not to.

    Raises:
        SchemaTooNew: it belongs to a newer program.
    """
    from monitor.app import database_address
    from monitor.storage import migrate
    from monitor.storage.engine import open_database

    database = open_database(database_address(settings))
    try:
        if settings.migrate:
            migrate.upgrade(database)
        else:
            migrate.require_current(database)
        yield database
    finally:
        database.close()
