"""The series of a run, each with its small number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.domain.series import Series
from monitor.errors import TooManySeries
from monitor.storage import tables
from trainer_hooks.wire import MAX_SERIES_PER_RUN, SeriesSpec

_SERIES = tables.series.c
_FIELDS = [field.name for field in fields(Series)]
_SPEC_FIELDS = [field.name for field in fields(SeriesSpec) if field.name != "kind"]


class SqlSeries:
    """``base.SeriesTable`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self, run: str) -> list[Series]:
        query = sa.select(tables.series).where(_SERIES.run == run).order_by(_SERIES.number)
        return [_to_series(row) for row in self._connection.execute(query)]

    def named(self, run: str, keys: Sequence[str]) -> list[Series]:
        query = sa.select(tables.series).where(_SERIES.run == run, _SERIES.key.in_(list(keys)))
        return [_to_series(row) for row in self._connection.execute(query)]

    def ensure(self, run: str, specs: Iterable[SeriesSpec]) -> dict[str, Series]:
        """See ``base.SeriesTable``. A spec that only has a key never undoes what is known."""
        held = {series.key: series for series in self.all(run)}
        fresh: dict[str, Series] = {}
        changed: list[Series] = []
        for spec in specs:
            known = held.get(spec.key)
            if known is None:
                if len(held) >= MAX_SERIES_PER_RUN:
                    raise TooManySeries(
                        f"Run {run} has {MAX_SERIES_PER_RUN:,} series, the most a run may have."
                    )
                held[spec.key] = fresh[spec.key] = _new(run, len(held) + 1, spec)
            elif not _is_bare(spec) and _new(run, known.number, spec) != known:
                held[spec.key] = _new(run, known.number, spec)
                if spec.key in fresh:
                    fresh[spec.key] = held[spec.key]
                else:
                    changed.append(held[spec.key])
        self._insert(list(fresh.values()))
        self._update(changed)
        return held

    def _insert(self, new: list[Series]) -> None:
        if new:
            rows = [{name: getattr(series, name) for name in _FIELDS} for series in new]
            self._connection.execute(sa.insert(tables.series), rows)

    def _update(self, changed: list[Series]) -> None:
        for series in changed:
            values = {name: getattr(series, name) for name in _SPEC_FIELDS if name != "key"}
            self._connection.execute(
                sa.update(tables.series)
                .where(_SERIES.run == series.run, _SERIES.number == series.number)
                .values(values)
            )


def _new(run: str, number: int, spec: SeriesSpec) -> Series:
    return Series(run, number, **{name: getattr(spec, name) for name in _SPEC_FIELDS})


def _is_bare(spec: SeriesSpec) -> bool:
    return spec == SeriesSpec(key=spec.key, name=spec.name)


def _to_series(row: Row[Any]) -> Series:
    return Series(**{name: row._mapping[name] for name in _FIELDS})
