"""Sealed points: blocks with their summaries, and buckets of 64 points."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.domain.block import FULL_TIER, Block, Bucket, Summary
from monitor.storage import tables
from monitor.storage.dialects import insert_rows

_BLOCK = tables.block.c
_BUCKET = tables.bucket.c
_ATTEMPT = tables.attempt.c
_SUMMARY_NAMES = "first_step last_step first_time last_time count non_finite low high total".split()
_PLAIN = [column for column in _BLOCK if column.name != "body"]
BUCKET_NAMES = (
    "series first_step first_time last_step count non_finite low high mean last last_kind".split()
)
_BARE_NAMES = "first_step first_time count non_finite low high mean".split()
_BLOCK_COLUMNS = ("run", "attempt", "series", "rank", "tier", "body", *_SUMMARY_NAMES)
_BUCKET_COLUMNS = ("run", "attempt", *BUCKET_NAMES)
_of_summary = attrgetter(*_SUMMARY_NAMES)
_of_bucket = attrgetter(*BUCKET_NAMES)
_CHUNK = 500
_CLEAR_BUCKETS = sa.delete(tables.bucket).where(
    _BUCKET.series == sa.bindparam("s"),
    _BUCKET.attempt == sa.bindparam("a"),
    _BUCKET.first_step.between(sa.bindparam("low"), sa.bindparam("high")),
)


class SqlBlocks:
    """``base.Blocks`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, tuple[int, dict[str, int]]] = {}

    def _places(self, run: str) -> tuple[int, dict[str, int]]:
        """The run's number and those of its attempts by id."""
        known = self._numbers.get(run)
        if known is None:
            query = sa.select(tables.run.c.number).where(tables.run.c.id == run)
            number = self._connection.execute(query).scalar() or 0  # 0: there is no such run
            rows = sa.select(_ATTEMPT.id, _ATTEMPT.number).where(_ATTEMPT.run == run)
            attempts = {name: int(n) for name, n in self._connection.execute(rows)}
            known = self._numbers[run] = (number, attempts)
        return known

    def add(self, run: str, blocks: Sequence[Block], buckets: Sequence[Bucket]) -> None:
        number, attempts = self._places(run)
        rows = [_to_row(number, attempts, block) for block in blocks]
        insert_rows(self._connection, "block", _BLOCK_COLUMNS, rows)
        bare = [(number, attempts[bucket.attempt], *_of_bucket(bucket)) for bucket in buckets]
        insert_rows(self._connection, "bucket", _BUCKET_COLUMNS, bare)

    def summaries(
        self, run: str, series: Sequence[int], *, first_step: int | None, last_step: int | None
    ) -> list[Block]:
        number, attempts = self._places(run)
        query = sa.select(*_PLAIN).where(_BLOCK.run == number, _BLOCK.series.in_(list(series)))
        query = _touching(query, _BLOCK, first_step, last_step)
        ordered = query.order_by(_BLOCK.series, _BLOCK.attempt, _BLOCK.first_step, _BLOCK.id)
        return self._blocks(ordered, attempts)

    def open(self, run: str) -> list[Block]:
        """Blocks that may still be merged, without bodies: the tails of all series, and patches."""
        number, attempts = self._places(run)
        query = sa.select(*_PLAIN).where(_BLOCK.run == number, sa.text(f"tier < {FULL_TIER}"))
        ordered = query.order_by(_BLOCK.series, _BLOCK.attempt, _BLOCK.first_step, _BLOCK.id)
        return self._blocks(ordered, attempts)

    def tail_tiers(self, run: str) -> list[Block]:
        held = self.open(run)
        return self.bodies([block.id for block in held if block.id is not None])

    def last_steps(self, run: str, series: Sequence[int]) -> dict[tuple[int, str], int]:
        """The highest sealed step of each series and attempt that has one."""
        number, _ = self._places(run)
        newest = (
            sa.select(sa.func.max(_BLOCK.last_step))
            .where(
                _BLOCK.run == number,
                _BLOCK.series == tables.series.c.number,
                _BLOCK.attempt == _ATTEMPT.number,
            )
            .scalar_subquery()
        )
        both = tables.series.join(tables.attempt, tables.series.c.run == _ATTEMPT.run)
        query = sa.select(tables.series.c.number, _ATTEMPT.id, newest).select_from(both)
        query = query.where(tables.series.c.run == run)
        wanted = set(series)
        return {
            (int(row[0]), row[1]): int(row[2])
            for row in self._connection.execute(query)
            if row[2] is not None and row[0] in wanted
        }

    def bodies(self, ids: Sequence[int]) -> list[Block]:
        found: list[Block] = []
        for at in range(0, len(ids), _CHUNK):
            chunk = list(ids[at : at + _CHUNK])
            query = (
                sa.select(tables.block, _ATTEMPT.id.label("attempt_id"))
                .join(tables.run, tables.run.c.number == _BLOCK.run)
                .join(
                    tables.attempt,
                    sa.and_(_ATTEMPT.run == tables.run.c.id, _ATTEMPT.number == _BLOCK.attempt),
                )
                .where(_BLOCK.id.in_(chunk))
                .order_by(_BLOCK.series, _BLOCK.attempt, _BLOCK.first_step, _BLOCK.id)
            )
            rows = self._connection.execute(query)
            found += [_to_block(row, row.attempt_id, row.body) for row in rows]
        return found

    def buckets(
        self, run: str, series: Sequence[int], *, first_step: int | None, last_step: int | None
    ) -> list[Bucket]:
        number, attempts = self._places(run)
        names = {place: name for name, place in attempts.items()}
        columns = [_BUCKET[name] for name in BUCKET_NAMES]
        query = sa.select(_BUCKET.attempt, *columns).where(
            _BUCKET.run == number, _BUCKET.series.in_(list(series))
        )
        query = _touching(query, _BUCKET, first_step, last_step)
        ordered = query.order_by(_BUCKET.series, _BUCKET.attempt, _BUCKET.first_step)
        return [
            Bucket(attempt=names[row[0]], **dict(zip(BUCKET_NAMES, row[1:], strict=True)))
            for row in self._connection.execute(ordered)
        ]

    def bucket_rows(
        self, run: str, series: int, attempt: str, *, first_step: int, last_step: int
    ) -> list[tuple[Any, ...]]:
        number, attempts = self._places(run)
        query = sa.select(*(_BUCKET[name] for name in _BARE_NAMES)).where(
            _BUCKET.run == number,
            _BUCKET.series == series,
            _BUCKET.attempt == attempts[attempt],
            _BUCKET.first_step.between(first_step, last_step),
        )
        # The driver's own tuples: a Row object for each would cost more than the query.
        cursor = self._connection.execute(query.order_by(_BUCKET.first_step)).cursor
        return list(cursor.fetchall())

    def clear_buckets(self, run: str, ranges: Sequence[tuple[int, str, int, int]]) -> None:
        number, attempts = self._places(run)
        rows = [
            {"s": series, "a": attempts[attempt], "low": low, "high": high}
            for series, attempt, low, high in ranges
        ]
        if rows:
            self._connection.execute(_CLEAR_BUCKETS.where(_BUCKET.run == number), rows)

    def replace(self, run: str, old: Sequence[int], new: Sequence[Block]) -> None:
        for at in range(0, len(old), _CHUNK):
            chunk = list(old[at : at + _CHUNK])
            self._connection.execute(sa.delete(tables.block).where(_BLOCK.id.in_(chunk)))
        self.add(run, new, [])

    def replace_buckets(
        self,
        run: str,
        series: int,
        attempt: str,
        first_step: int,
        last_step: int,
        buckets: Sequence[Bucket],
    ) -> None:
        self.clear_buckets(run, [(series, attempt, first_step, last_step)])
        self.add(run, [], buckets)

    def _blocks(self, query: sa.Select[Any], attempts: dict[str, int]) -> list[Block]:
        names = {place: name for name, place in attempts.items()}
        return [_to_block(row, names[row.attempt], b"") for row in self._connection.execute(query)]


def _touching(
    query: sa.Select[Any], columns: Any, first_step: int | None, last_step: int | None
) -> sa.Select[Any]:
    if first_step is not None:
        query = query.where(columns.last_step >= first_step)
    if last_step is not None:
        query = query.where(columns.first_step <= last_step)
    return query


def _to_row(run: int, attempts: dict[str, int], block: Block) -> tuple[Any, ...]:
    place = (run, attempts[block.attempt], block.series, block.rank, block.tier, block.body)
    return (*place, *_of_summary(block.summary))


def _to_block(row: Row[Any], attempt: str, body: bytes) -> Block:
    held = row._mapping
    return Block(
        series=row.series,
        attempt=attempt,
        summary=Summary(**{name: held[name] for name in _SUMMARY_NAMES}),
        rank=row.rank,
        tier=row.tier,
        body=body,
        id=row.id,
    )
