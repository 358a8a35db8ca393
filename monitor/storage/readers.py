"""Readers of a run's log: their leases, cursors and snapshots."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from monitor.storage import tables
from monitor.storage.base import Cursor, Fenced, Snapshot
from monitor.storage.dialects import insert, now_s, upsert

_READER = tables.reader.c
_SNAPSHOT = tables.snapshot.c


class SqlReaders:
    """``base.Readers`` over one connection. Leases are told by the database's clock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self, run: str, reader: str, *, owner: str, lease_s: float) -> Cursor | None:
        now = now_s(self._connection)
        self._ensure(run, reader)
        mine = sa.and_(_READER.run == run, _READER.reader == reader)
        free = sa.or_(_READER.owner == owner, _READER.leased_until <= now)
        taken = self._connection.execute(
            sa.update(tables.reader)
            .where(mine, free)
            .values(
                epoch=sa.case((_READER.owner == owner, _READER.epoch), else_=_READER.epoch + 1),
                owner=owner,
                leased_until=now + lease_s,
            )
            .returning(_READER.pos, _READER.epoch)
        ).first()
        return None if taken is None else Cursor(run, reader, taken.pos, taken.epoch)

    def _ensure(self, run: str, reader: str) -> None:
        new = {
            "run": run,
            "reader": reader,
            "pos": 0,
            "epoch": 0,
            "owner": "",
            "leased_until": 0.0,
        }
        self._connection.execute(
            insert(self._connection, tables.reader).on_conflict_do_nothing(), new
        )

    def move(self, cursor: Cursor, pos: int) -> Cursor:
        moved = self._connection.execute(
            sa.update(tables.reader)
            .where(
                _READER.run == cursor.run,
                _READER.reader == cursor.reader,
                _READER.pos == cursor.pos,
                _READER.epoch == cursor.epoch,
            )
            .values(pos=pos)
        )
        if moved.rowcount != 1:
            raise Fenced(f"{cursor.reader} of run {cursor.run} has another holder")
        return Cursor(cursor.run, cursor.reader, pos, cursor.epoch)

    def release(self, run: str, reader: str, *, owner: str) -> None:
        """Let the lease go at once, so that another process need not wait for it to lapse."""
        self._connection.execute(
            sa.update(tables.reader)
            .where(_READER.run == run, _READER.reader == reader, _READER.owner == owner)
            .values(owner="", leased_until=0.0)
        )

    def positions(self, run: str) -> dict[str, int]:
        query = sa.select(_READER.reader, _READER.pos).where(_READER.run == run)
        return {reader: pos for reader, pos in self._connection.execute(query)}

    def save_snapshot(self, snapshot: Snapshot) -> None:
        values = {
            "run": snapshot.run,
            "reader": snapshot.reader,
            "pos": snapshot.pos,
            "state": snapshot.state,
        }
        upsert(self._connection, tables.snapshot, values, key=("run", "reader"))

    def load_snapshot(self, run: str, reader: str) -> Snapshot | None:
        query = sa.select(_SNAPSHOT.pos, _SNAPSHOT.state).where(
            _SNAPSHOT.run == run, _SNAPSHOT.reader == reader
        )
        row = self._connection.execute(query).first()
        return None if row is None else Snapshot(run, reader, row.pos, row.state)

    def snapshot_pos(self, run: str, reader: str) -> int | None:
        """Where a reader's snapshot stands, without loading it."""
        query = sa.select(_SNAPSHOT.pos).where(_SNAPSHOT.run == run, _SNAPSHOT.reader == reader)
        return self._connection.execute(query).scalar()
