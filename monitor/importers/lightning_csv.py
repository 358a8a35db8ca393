"""Lightning's ``metrics.csv``: training and evaluation in rows of their own, ``*_step`` and
``*_epoch`` twins, learning rates as ``lr-AdamW``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from monitor.errors import UnreadableLog
from monitor.importers import csv_table
from monitor.importers.base import RawLog, RawRow, Tally

_PAIRED = ("_step", "_epoch")


def recognises(head: bytes) -> bool:
    """Whether there are an epoch, a step, and a column as only Lightning names them."""
    try:
        names = csv_table.header(head)
    except UnreadableLog:
        return False
    own = any(name.endswith(_PAIRED) or name.startswith("lr-") for name in names)
    return {"epoch", "step"} <= set(names) and own


def read(stream: BinaryIO, tally: Tally) -> RawLog:
    """Rows as they are, without the means over an epoch whose single steps are there too."""
    return RawLog(_rows(stream, tally))


def _rows(stream: BinaryIO, tally: Tally) -> Iterator[RawRow]:
    for row in csv_table.table(stream, tally):
        cells = dict(row.cells)
        for name in [name for name in cells if _is_mean_of_steps(name, cells)]:
            if cells.pop(name):
                tally.leave("a mean over an epoch whose steps are there too", row.number)
        if any(cell for name, cell in cells.items() if name not in ("epoch", "step")):
            yield RawRow(row.number, cells)


def _is_mean_of_steps(name: str, cells: dict[str, str]) -> bool:
    return name.endswith("_epoch") and f"{name.removesuffix('_epoch')}_step" in cells
