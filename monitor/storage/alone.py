"""On SQLite there is one server process: a lock beside the file keeps a second one out.

Whoever holds the lock knows that every claim found in the database belongs to a dead process, and
takes it back at once instead of waiting for its lease to lapse.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from monitor.errors import InUse
from monitor.storage import tables


class FileLock:
    """A lock that the kernel lets go when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raise ``InUse`` if another process has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise InUse(
                f"Another server process has this database ({self._path.with_suffix('')}).",
                hint="Stop it first, or use PostgreSQL, which several processes may share.",
            ) from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go; more calls do nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def take_back_claims(connection: Connection) -> None:
    """Leases of readers and claims on messages are void: their owners are dead."""
    connection.execute(sa.update(tables.reader).values(leased_until=0.0))
    sending = tables.outbox.c.state == "sending"
    connection.execute(sa.update(tables.outbox).where(sending).values(claimed_until=0.0))
