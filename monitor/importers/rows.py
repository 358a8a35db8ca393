"""From raw rows to numbers under series keys: names resolved, cells read, fillers told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.importers.base import MAX_ROWS, RawRow, Tally
from monitor.importers.names import (
    AXIS_OF,
    STEP_ORDER,
    Axis,
    Column,
    named,
    own_series,
    recognise,
)
from monitor.importers.numbers import NotANumber, read_instant, read_number
from trainer_hooks.wire import MAX_SERIES_PER_RUN, MAX_STEP, SeriesSpec


@dataclass(slots=True)
class Row:
    """A row with its axes read. ``time_s`` counts from anything; values by series key."""

    number: int
    step: int | None = None
    axes: dict[Axis, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Columns:
    """Which column is what, settled as columns appear; no two columns share a series."""

    mapping: Mapping[str, str]
    tally: Tally
    known: dict[str, Column] = field(default_factory=dict)
    specs: dict[str, SeriesSpec] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def get(self, name: str, row: int) -> Column:
        """The column's meaning, found once."""
        column = self.known.get(name)
        if column is None:
            column = self.known[name] = self._settle(name, row)
        return column

    def taken(self) -> dict[str, str]:
        """Series key, or axis in angle brackets, by column name."""
        return {
            name: column.spec.key if column.spec else f"<{column.axis}>"
            for name, column in self.known.items()
            if column.axis != "ignore"
        }

    def rename(self, key: str, spec: SeriesSpec) -> None:
        """Let the column that was series ``key`` be another."""
        for name, column in self.known.items():
            if column.spec is not None and column.spec.key == key:
                self.known[name] = replace(column, spec=spec)
        del self.specs[key]
        self.specs[spec.key] = spec

    def _settle(self, name: str, row: int) -> Column:
        column = self._mapped(self.mapping[name]) if name in self.mapping else recognise(name)
        if column.axis == "step":
            self.steps.append(name)
        if column.spec is None:
            return column
        if column.spec.key in self.specs:
            shown = name[:60]
            self.tally.note(f"column {shown!r} says what another column says; kept under its name")
            column = Column(spec=own_series(name))
        return self._add(column, row)

    def _add(self, column: Column, row: int) -> Column:
        """The column with its series noted, unless there is no room for it."""
        spec = column.spec
        if spec is None:
            return column
        if spec.key in self.specs:
            self.tally.leave("a second column of the same name", row)
            return Column(axis="ignore")
        if len(self.specs) >= MAX_SERIES_PER_RUN:
            self.tally.leave("more columns than a run may have series", row)
            return Column(axis="ignore")
        self.specs[spec.key] = spec
        return column

    @staticmethod
    def _mapped(target: str) -> Column:
        if target in ("", "ignore"):
            return Column(axis="ignore")
        axis = AXIS_OF.get(target)
        return Column(axis=axis) if axis else Column(spec=named(target))


def read_rows(raw: Iterable[RawRow], columns: Columns) -> list[Row]:
    """Read every cell of every row; what is no number is left out with its column's name."""
    rows: list[Row] = []
    for item in raw:
        if len(rows) >= MAX_ROWS:
            columns.tally.leave(f"beyond the first {MAX_ROWS:,} rows", item.number)
            break
        row = _read_row(item, columns)
        if row is not None:
            rows.append(row)
    drop_fillers(rows, columns.tally)
    return rows


def _read_row(item: RawRow, columns: Columns) -> Row | None:
    row = Row(item.number)
    steps: dict[str, float] = {}
    for name, cell in item.cells.items():
        column = columns.get(name, item.number)
        if column.axis == "ignore":
            continue
        number = _cell(name, cell, column, item.number, columns.tally)
        if number is None:
            continue
        if column.axis == "step":
            steps[name] = number
        elif column.axis is not None:
            row.axes[column.axis] = number
        elif column.spec is not None:
            row.values[column.spec.key] = number
    if not row.values:
        columns.tally.leave("the row holds no value", item.number)
        return None
    return row if _take_step(row, steps, columns.tally) else None


def _cell(name: str, cell: Any, column: Column, row: int, tally: Tally) -> float | None:
    if column.axis in ("time_s", "train_time_s"):
        instant = read_instant(cell)
        return None if instant is None or not math.isfinite(instant) else instant * column.scale
    try:
        number = read_number(cell)
    except NotANumber:
        tally.leave(f"not a number (column {name[:60]!r})", row)
        return None
    if column.axis in ("tokens", "samples", "epoch") and number is not None:
        return number if math.isfinite(number) else None
    return None if number is None else number * column.scale


def _take_step(row: Row, steps: Mapping[str, float], tally: Tally) -> bool:
    """Set the row's step from the best column that has one; False: the row cannot be placed."""
    if not steps:
        return True
    name = min(steps, key=_rank)
    step = steps[name]
    if not math.isfinite(step) or step != int(step):
        tally.leave("the step is no whole number", row.number)
        return False
    if not 0 <= step <= min(MAX_STEP, 2**53):
        tally.leave("the step is below 0 or beyond all counting", row.number)
        return False
    row.step = int(step)
    return True


def _rank(name: str) -> int:
    return STEP_ORDER.index(name) if name in STEP_ORDER else len(STEP_ORDER)


def drop_fillers(rows: list[Row], tally: Tally) -> None:
    """Take out NaN that only says "not measured at this row".

    A series that is NaN more often than it is a number, and becomes a number again and again, is
    filled up between its measurements. A loss that turns NaN and stays so is not: those are facts.
    """
    places: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        for key, value in row.values.items():
            if not math.isnan(value):
                places.setdefault(key, []).append(index)
    nans: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        for key, value in row.values.items():
            if math.isnan(value):
                nans.setdefault(key, []).append(index)
    for key, gaps in nans.items():
        for index in _fillers(places.get(key, []), gaps):
            del rows[index].values[key]
            tally.leave(f"nan that says 'not measured' (series {key[:60]!r})", rows[index].number)
    rows[:] = [row for row in rows if row.values]


def _fillers(measured: list[int], nans: list[int]) -> list[int]:
    """Rows whose NaN is a filler, given the rows that hold a number and those that hold NaN."""
    if len(measured) < 2:
        return []
    first, last = measured[0], measured[-1]
    inside = [index for index in nans if first < index < last]
    if len(inside) <= len(measured):
        return []
    longest = max(b - a for a, b in zip(measured, measured[1:], strict=False))
    return [index for index in nans if index <= last or index - last <= longest]
