"""What a list of runs shows of each: a few questions for all of them, however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from monitor.domain.block import Bucket
from monitor.domain.run import Attempt
from monitor.storage import tables
from monitor.storage.blocks import BUCKET_NAMES
from monitor.storage.events import to_phase
from monitor.storage.runs import to_attempt
from trainer_hooks.wire import Phase

_ATTEMPT = tables.attempt.c
_BATCH = tables.batch.c
_BUCKET = tables.bucket.c
_HEAD = tables.log_head.c
_PHASE = tables.phase.c
_RUN = tables.run.c
_SERIES = tables.series.c
_CHUNK = 500
_NUMBERS = sa.select(_RUN.number, _RUN.id)

T = TypeVar("T")


class SqlGlances:
    """``base.Glances`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def bounds(self, runs: Sequence[str]) -> dict[str, tuple[int, int]]:
        first = sa.select(sa.func.min(_BATCH.pos)).where(_BATCH.run == _HEAD.run).scalar_subquery()
        rows = self._of(sa.select(_HEAD.run, _HEAD.pos, first), _HEAD.run, runs)
        return {row[0]: (row[1] + 1 if row[2] is None else row[2], row[1]) for row in rows}

    def attempts(self, runs: Sequence[str]) -> dict[str, list[Attempt]]:
        found: dict[str, list[Attempt]] = {}
        query = sa.select(tables.attempt).order_by(_ATTEMPT.ordinal, _ATTEMPT.number)
        for row in self._of(query, _ATTEMPT.run, runs):
            found.setdefault(row.run, []).append(to_attempt(row))
        return found

    def checkpoints(self, runs: Sequence[str]) -> dict[str, list[tuple[str, Phase]]]:
        found: dict[str, list[tuple[str, Phase]]] = {}
        query = sa.select(tables.phase).where(_PHASE.name == "checkpoint")
        for row in self._of(query, _PHASE.run, runs):
            found.setdefault(row.run, []).append((row.attempt, to_phase(row)))
        return found

    def lines(
        self, runs: Sequence[str], key: str, *, points: int
    ) -> dict[str, list[tuple[int, float]]]:
        # Buckets that lie over or begin at the lines of a grid over all steps.
        width = sa.case((_RUN.last_step >= points, _RUN.last_step // points), else_=1)
        first, last = _BUCKET.first_step, _BUCKET.last_step
        on_line = sa.or_(first // width != last // width, first % width == 0)
        query = sa.select(_SERIES.run, first, _BUCKET.mean).select_from(_sealed())
        query = query.where(_SERIES.key == key, _BUCKET.mean.is_not(None), on_line)
        found: dict[str, list[tuple[int, float]]] = {}
        for run, step, mean in self._of(query, _SERIES.run, runs):
            found.setdefault(run, []).append((step, mean))
        return {run: sorted(line) for run, line in found.items()}

    def lasts(
        self, runs: Sequence[str], keys: Sequence[str] | None = None
    ) -> dict[str, list[tuple[str, Bucket]]]:
        numbers = {row[0]: row[1] for row in self._of(_NUMBERS, _RUN.id, runs)}
        found: dict[str, list[tuple[str, Bucket]]] = {}
        places = self._newest(runs, keys)
        columns = [_BUCKET[name] for name in BUCKET_NAMES]
        for chunk in _chunks(list(places)):
            wanted = sa.values(*(sa.column(name, sa.BigInteger) for name in "rsaf"), name="wanted")
            at = wanted.data(
                chunk
            ).cte()  # joined: a list of tuples would be looked for in all rows
            here = sa.and_(
                _BUCKET.run == at.c.r,
                _BUCKET.series == at.c.s,
                _BUCKET.attempt == at.c.a,
                _BUCKET.first_step == at.c.f,
            )
            query = sa.select(at, *columns).select_from(at.join(tables.bucket, here))
            for row in self._connection.execute(query):
                key, attempt = places[tuple(row[:4])]
                values = dict(zip(BUCKET_NAMES, row[4:], strict=True))
                found.setdefault(numbers[row[0]], []).append(
                    (key, Bucket(attempt=attempt, **values))
                )
        return found

    def _newest(
        self, runs: Sequence[str], keys: Sequence[str] | None
    ) -> dict[tuple[int, int, int, int], tuple[str, str]]:
        """Where the last buckets lie: run, series, attempt, first step; with key and attempt."""
        newest = (
            sa.select(sa.func.max(_BUCKET.first_step))
            .where(
                _BUCKET.run == _RUN.number,
                _BUCKET.series == _SERIES.number,
                _BUCKET.attempt == _ATTEMPT.number,
            )
            .scalar_subquery()
        )
        query = sa.select(
            _RUN.number, _SERIES.number, _ATTEMPT.number, newest, _SERIES.key, _ATTEMPT.id
        ).select_from(
            tables.series.join(tables.run, _RUN.id == _SERIES.run).join(
                tables.attempt, _ATTEMPT.run == _SERIES.run
            )
        )
        if keys is not None:
            query = query.where(_SERIES.key.in_(list(keys)))
        rows = map(tuple, self._of(query, _SERIES.run, runs))
        return {row[:4]: row[4:] for row in rows if row[3] is not None}

    def _of(
        self, query: sa.Select[Any], column: sa.ColumnElement[str], runs: Sequence[str]
    ) -> Iterator[Any]:
        for chunk in _chunks(runs):
            yield from self._connection.execute(query.where(column.in_(chunk)))


def _sealed() -> sa.Join:
    """Series with their buckets, of all attempts."""
    return tables.series.join(tables.run, _RUN.id == _SERIES.run).join(
        tables.bucket, sa.and_(_BUCKET.run == _RUN.number, _BUCKET.series == _SERIES.number)
    )


def _chunks(items: Sequence[T]) -> Iterator[list[T]]:
    for at in range(0, len(items), _CHUNK):
        yield list(items[at : at + _CHUNK])
