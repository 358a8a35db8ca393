"""Bringing a database to this program's schema, without an ini file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from monitor import resources
from monitor.errors import SchemaTooNew
from monitor.storage import tables


class Migratable(Protocol):
    """A database that lends a connection for changing its schema."""

    def migrating(self) -> AbstractContextManager[Connection]: ...


def upgrade(database: Migratable) -> None:
    """Bring the schema to the newest revision, in one transaction; nothing if it is there.

    Raises:
        SchemaTooNew: the database belongs to a newer program; nothing was changed.
    """
    with database.migrating() as connection:
        config = _config(connection)
        _refuse_newer(connection, config)
        command.upgrade(config, "head")


def downgrade(database: Migratable, revision: str) -> None:
    """Go back to a revision; ``base`` leaves no tables."""
    with database.migrating() as connection:
        command.downgrade(_config(connection), revision)


def revision(database: Migratable) -> str | None:
    """The revision of the database; None for an empty one."""
    with database.migrating() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str | None:
    """The newest revision this program knows."""
    return ScriptDirectory(str(resources.migrations_folder())).get_current_head()


def require_current(database: Migratable) -> None:
    """Raise ``SchemaTooNew`` for a newer schema, ``RuntimeError`` for one that is behind."""
    with database.migrating() as connection:
        _refuse_newer(connection, _config(connection))
        if MigrationContext.configure(connection).get_current_revision() != head():
            raise RuntimeError("the database is behind: run `watchkeeper migrate`")


def drift(database: Migratable) -> list[object]:
    """What differs between the database and ``tables``; empty at the newest revision."""
    with database.migrating() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, tables.metadata))


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.migrations_folder()))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_newer(connection: Connection, config: Config) -> None:
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    for held in MigrationContext.configure(connection).get_current_heads():
        if held not in known:
            raise SchemaTooNew(
                f"The database is at revision {held}, which this program does not know.",
                hint="Start the newer program this database was last used with.",
            )
