"""W&B history as CSV: exported from a chart (``run - metric`` and its ``__MIN``, ``__MAX``) or
written by ``run.history().to_csv()`` (``_step``, ``_timestamp``, ``_runtime``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from monitor.errors import UnreadableLog
from monitor.importers import csv_table
from monitor.importers.base import RawLog, RawRow, Tally

_BOUNDS = ("__MIN", "__MAX")
_OWN = {"_runtime": "relative_time", "_timestamp": "timestamp"}


def recognises(head: bytes) -> bool:
    """Whether the line of names is one that W&B writes."""
    try:
        names = csv_table.header(head)
    except UnreadableLog:
        return False
    bounds = any(name.endswith(_BOUNDS) for name in names)
    return bounds or bool({"_step", "_timestamp", "_runtime"} & set(names))


def read(stream: BinaryIO, tally: Tally) -> RawLog:
    """Rows without the chart's bounds; of several runs in one chart the first is taken."""
    return RawLog(_rows(stream, tally))


def _rows(stream: BinaryIO, tally: Tally) -> Iterator[RawRow]:
    renamed: dict[str, str] = {}
    first_run: list[str] = []
    for row in csv_table.table(stream, tally):
        cells = {}
        for name, cell in row.cells.items():
            if name not in renamed:
                renamed[name] = _rename(name, first_run, row.number, tally)
            if renamed[name]:
                cells[renamed[name]] = cell
        if "timestamp" in cells:
            cells.pop("relative_time", None)
        yield RawRow(row.number, cells)


def _rename(name: str, first_run: list[str], row: int, tally: Tally) -> str:
    """The metric's own name; empty for a column that is not taken."""
    if name.endswith(_BOUNDS):
        tally.leave("a column of a chart's bounds (__MIN, __MAX)", row)
        return ""
    if name in _OWN:
        return _OWN[name]
    run, cut, metric = name.partition(" - ")
    if not cut:
        return name
    if not first_run:
        first_run.append(run)
    if run != first_run[0]:
        tally.leave(f"a column of another run ({run[:60]!r})", row)
        return ""
    return metric.strip() or name
