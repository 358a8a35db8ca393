"""The schema: no drift from the tables, up and down, and never touched by an older program."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from monitor.errors import SchemaTooNew
from monitor.storage import migrate
from monitor.storage.base import Database
from monitor.storage.engine import open_database


def names(database: Database) -> set[str]:
    with database.migrating() as connection:  # type: ignore[attr-defined]
        return set(sa.inspect(connection).get_table_names())


def test_head_is_what_the_tables_say(database: Database) -> None:
    assert migrate.revision(database) == migrate.head()
    assert migrate.drift(database) == []


def test_down_and_up_again(database: Database) -> None:
    held = names(database)
    migrate.downgrade(database, "base")
    assert names(database) == {"alembic_version"}
    assert migrate.revision(database) is None
    with pytest.raises(RuntimeError, match="behind"):
        migrate.require_current(database)
    migrate.upgrade(database)
    assert names(database) == held
    assert migrate.drift(database) == []
    migrate.require_current(database)


def test_a_newer_schema_is_refused_and_left_alone(database: Database) -> None:
    with database.migrating() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    for look in (migrate.upgrade, migrate.require_current):
        with pytest.raises(SchemaTooNew, match="9999"):
            look(database)
    assert migrate.revision(database) == "9999"


def test_two_servers_that_start_at_once_migrate_once(database_url: str) -> None:
    databases = [open_database(database_url) for _ in range(3)]
    migrate.downgrade(databases[0], "base")
    errors: list[BaseException] = []

    def start(database) -> None:
        try:
            migrate.upgrade(database)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert migrate.drift(databases[0]) == []
    for database in databases:
        database.close()
