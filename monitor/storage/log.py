"""The log of each run: batches and notes by position, and the account of every source."""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.domain.log import EntryKind, LogEntry
from monitor.storage import tables
from monitor.storage.base import Appended, SourceState
from monitor.storage.codec import pack_entry, unpack_entry

_HEAD = tables.log_head.c
_BATCH = tables.batch.c
_SOURCE = tables.source.c
_BATCH_NAMES = ("run", "pos", "kind", "at", "attempt", "source", "seq", "through_step")
_STATE_FIELDS = [field.name for field in dataclasses.fields(SourceState)]

_TAKE_POSITION = (
    sa.update(tables.log_head)
    .where(_HEAD.run == sa.bindparam("of"))
    .values(pos=_HEAD.pos + 1)
    .returning(_HEAD.pos)
)
_FIND_SOURCE = sa.select(tables.source).where(
    _SOURCE.run == sa.bindparam("r"),
    _SOURCE.attempt == sa.bindparam("a"),
    _SOURCE.source == sa.bindparam("s"),
)
_INSERT_BATCH = sa.insert(tables.batch)
_INSERT_SOURCE = sa.insert(tables.source)
_UPDATE_SOURCE = (
    sa.update(tables.source)
    .where(
        _SOURCE.run == sa.bindparam("r"),
        _SOURCE.attempt == sa.bindparam("a"),
        _SOURCE.source == sa.bindparam("s"),
    )
    .values(
        held_through=sa.bindparam("held"),
        gaps=sa.bindparam("ranges"),
        through_step=sa.bindparam("through"),
        last_seen_at=sa.bindparam("seen"),
        stored=_SOURCE.stored + sa.bindparam("more_stored"),
        duplicate=_SOURCE.duplicate + sa.bindparam("more_duplicate"),
        refused=_SOURCE.refused + sa.bindparam("more_refused"),
    )
)
_THROUGH = sa.bindparam("through", type_=sa.BigInteger)
# The next number of a source that lacks none: nearly every batch. One statement instead of two.
_ADVANCE_SOURCE = (
    sa.update(tables.source)
    .where(
        _SOURCE.run == sa.bindparam("r"),
        _SOURCE.attempt == sa.bindparam("a"),
        _SOURCE.source == sa.bindparam("s"),
        _SOURCE.held_through == sa.bindparam("before"),
        _SOURCE.gaps == sa.bindparam("none"),
    )
    .values(
        held_through=sa.bindparam("held"),
        through_step=sa.case(
            (_SOURCE.through_step > _THROUGH, _SOURCE.through_step),
            else_=sa.func.coalesce(_THROUGH, _SOURCE.through_step),
        ),
        last_seen_at=sa.bindparam("seen"),
        stored=_SOURCE.stored + sa.bindparam("more_stored"),
        refused=_SOURCE.refused + sa.bindparam("more_refused"),
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Which sequence numbers are held: all through ``through``, and ranges [from, to] above."""

    through: int
    ranges: tuple[tuple[int, int], ...]

    def holds(self, seq: int) -> bool:
        return seq <= self.through or any(low <= seq <= high for low, high in self.ranges)

    def add(self, seq: int) -> Held:
        """With one more number that is not held yet."""
        merged: list[tuple[int, int]] = list(self.ranges)
        bisect.insort(merged, (seq, seq))
        joined: list[tuple[int, int]] = []
        for low, high in [(-1, self.through), *merged]:
            if joined and low <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
            else:
                joined.append((low, high))
        return Held(joined[0][1], tuple(joined[1:]))


class SqlLog:
    """``base.Log`` over one connection. ``appended`` collects what this transaction wrote."""

    def __init__(self, connection: Connection, appended: dict[str, int]) -> None:
        self._connection = connection
        self._appended = appended

    def append_batch(self, entry: LogEntry, *, values: int, refused: int) -> Appended:
        # The head is taken first: its row lock makes repeats that arrive together wait in line.
        pos = self._take_position(entry.run)
        names = {"r": entry.run, "a": entry.attempt, "s": entry.source}
        if self._advance(names, entry, values, refused):
            self._insert(dataclasses.replace(entry, pos=pos), values)
            return Appended(pos, entry.seq)
        row = self._connection.execute(_FIND_SOURCE, names).first()
        held = Held(-1, ()) if row is None else _held(row)
        if held.holds(entry.seq):
            self._give_back(entry.run, pos)
            self._count(names, row, held, entry, duplicate=values + refused)
            return Appended(None, held.through)
        held = held.add(entry.seq)
        self._insert(dataclasses.replace(entry, pos=pos), values)
        self._count(names, row, held, entry, stored=values, refused=refused)
        return Appended(pos, held.through)

    def _advance(self, names: dict[str, str], entry: LogEntry, values: int, refused: int) -> bool:
        done = self._connection.execute(
            _ADVANCE_SOURCE,
            names
            | {
                "before": entry.seq - 1,
                "none": [],
                "held": entry.seq,
                "through": entry.through_step,
                "seen": entry.at,
                "more_stored": values,
                "more_refused": refused,
            },
        )
        return bool(done.rowcount)

    def lock(self, run: str) -> None:
        """Let no other transaction write to this run until ours ends (PostgreSQL)."""
        if self._connection.dialect.name == "postgresql":
            query = sa.select(_HEAD.pos).where(_HEAD.run == run).with_for_update()
            self._connection.execute(query)

    def _take_position(self, run: str) -> int:
        pos = self._connection.execute(_TAKE_POSITION, {"of": run}).scalar()
        if pos is None:
            self._connection.execute(sa.insert(tables.log_head), {"run": run, "pos": 1})
            pos = 1
        return int(pos)

    def _give_back(self, run: str, pos: int) -> None:
        self._connection.execute(
            sa.update(tables.log_head).where(_HEAD.run == run).values(pos=pos - 1)
        )

    def _insert(self, entry: LogEntry, points: int) -> None:
        body = pack_entry(entry.frames, entry.records, entry.note)
        values = {name: getattr(entry, name) for name in _BATCH_NAMES}
        values |= {"points": points, "size": len(body), "body": body}
        self._connection.execute(_INSERT_BATCH, values)
        self._appended[entry.run] = entry.pos

    def _count(
        self,
        names: dict[str, str],
        row: Row[Any] | None,
        held: Held,
        entry: LogEntry,
        *,
        stored: int = 0,
        duplicate: int = 0,
        refused: int = 0,
    ) -> None:
        if row is None:
            self._add_source(names, held, entry, stored=stored, refused=refused)
            return
        self._connection.execute(
            _UPDATE_SOURCE,
            names
            | {
                "held": held.through,
                "ranges": held.ranges,
                "through": _later(row.through_step, entry.through_step),
                "seen": entry.at,
                "more_stored": stored,
                "more_duplicate": duplicate,
                "more_refused": refused,
            },
        )

    def _add_source(
        self, names: dict[str, str], held: Held, entry: LogEntry, *, stored: int, refused: int
    ) -> None:
        values = {
            "run": names["r"],
            "attempt": names["a"],
            "source": names["s"],
            "held_through": held.through,
            "gaps": held.ranges,
            "through_step": entry.through_step,
            "last_seen_at": entry.at,
            "stored": stored,
            "duplicate": 0,
            "refused": refused,
            "overwritten": 0,
            "client": {},
        }
        self._connection.execute(_INSERT_SOURCE, values)

    def append_note(self, run: str, kind: EntryKind, note: dict[str, Any], *, at: float) -> int:
        pos = self._take_position(run)
        self._insert(LogEntry(run, pos, kind, at, note=note), 0)
        return pos

    def head(self, run: str) -> int:
        query = sa.select(_HEAD.pos).where(_HEAD.run == run)
        return int(self._connection.execute(query).scalar() or 0)

    def heads(self) -> dict[str, int]:
        rows = self._connection.execute(sa.select(_HEAD.run, _HEAD.pos))
        return {run: int(pos) for run, pos in rows}

    def read(self, run: str, *, after: int, limit: int, max_bytes: int = 8 << 20) -> list[LogEntry]:
        """Entries after a position, up to ``limit`` and about ``max_bytes`` of bodies."""
        through = self._within(run, after, limit, max_bytes)
        query = sa.select(tables.batch).where(
            _BATCH.run == run, _BATCH.pos > after, _BATCH.pos <= through
        )
        return [_to_entry(row) for row in self._connection.execute(query.order_by(_BATCH.pos))]

    def _within(self, run: str, after: int, limit: int, max_bytes: int) -> int:
        """The last position that fits; always at least one entry."""
        query = sa.select(_BATCH.pos, _BATCH.size).where(_BATCH.run == run, _BATCH.pos > after)
        through, total = after, 0
        for pos, size in self._connection.execute(query.order_by(_BATCH.pos).limit(limit)):
            total += size
            if total > max_bytes and through > after:
                break
            through = pos
        return through

    def backlog(self, run: str, *, after: int) -> tuple[int, int, float | None]:
        """What lies after a position: entries, points, and when the oldest came."""
        query = sa.select(
            sa.func.count(), sa.func.coalesce(sa.func.sum(_BATCH.points), 0), sa.func.min(_BATCH.at)
        ).where(_BATCH.run == run, _BATCH.pos > after)
        entries, points, oldest = self._connection.execute(query).one()
        return int(entries), int(points), oldest

    def first(self, run: str) -> int:
        query = sa.select(sa.func.min(_BATCH.pos)).where(_BATCH.run == run)
        first = self._connection.execute(query).scalar()
        return self.head(run) + 1 if first is None else int(first)

    def drop_through(self, run: str, pos: int) -> int:
        done = self._connection.execute(
            sa.delete(tables.batch).where(_BATCH.run == run, _BATCH.pos <= pos)
        )
        return int(done.rowcount)

    def sources(self, run: str) -> list[SourceState]:
        query = sa.select(tables.source).where(_SOURCE.run == run)
        rows = self._connection.execute(query.order_by(_SOURCE.attempt, _SOURCE.source))
        return [SourceState(**{n: getattr(row, n) for n in _STATE_FIELDS}) for row in rows]

    def note_client(self, run: str, attempt: str, source: str, counts: dict[str, Any]) -> None:
        self._connection.execute(_of_source(run, attempt, source).values(client=counts))

    def note_overwritten(self, run: str, attempt: str, source: str, count: int) -> None:
        more = _SOURCE.overwritten + count
        self._connection.execute(_of_source(run, attempt, source).values(overwritten=more))


def _of_source(run: str, attempt: str, source: str) -> sa.Update:
    return sa.update(tables.source).where(
        _SOURCE.run == run, _SOURCE.attempt == attempt, _SOURCE.source == source
    )


def _held(row: Row[Any]) -> Held:
    return Held(row.held_through, tuple((low, high) for low, high in row.gaps))


def _later(one: int | None, other: int | None) -> int | None:
    return max((step for step in (one, other) if step is not None), default=None)


def _to_entry(row: Row[Any]) -> LogEntry:
    frames, records, note = unpack_entry(row.body)
    return LogEntry(
        run=row.run,
        pos=row.pos,
        kind=cast("EntryKind", row.kind),
        at=row.at,
        attempt=row.attempt,
        source=row.source,
        seq=row.seq,
        through_step=row.through_step,
        frames=frames,
        records=records,
        note=note,
    )
