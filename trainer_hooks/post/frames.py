"""From rows, one per step, to the frames of a batch: columns that share a cadence share a frame.

The encoding goes column by column: one long call of the JSON encoder would hold the interpreter's
lock for milliseconds, and the training thread would wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer_hooks.feed.sample import Sample
from trainer_hooks.wire import WIRE_VERSION, Record, to_cell, to_plain

ROW_BYTES = 256
CELL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Row:
    """Values measured at one step; ``at`` is the wall clock (seconds, UTC) at its end."""

    attempt: str
    step: int
    at: float
    cells: Mapping[str, Any]
    through: bool = True
    """Whether this completes its step (late evaluations do not)."""
    fed: Sequence[Sample] = ()
    """What the step was trained on, to be looked at beside the training thread."""

    @property
    def size(self) -> int:
        """About what it takes in memory, in bytes."""
        size = ROW_BYTES + CELL_BYTES * len(self.cells)
        return size + sum(sample.size for sample in self.fed) if self.fed else size


@dataclass(slots=True)
class Columns:
    """Frames still to be encoded, with the number of values and of those no number was in."""

    frames: list[tuple[list[int], list[float], dict[str, list[Any]]]] = field(default_factory=list)
    values: int = 0
    unusable: int = 0

    @property
    def keys(self) -> Iterable[str]:
        """Every series in here."""
        return (str(key) for _, _, columns in self.frames for key in columns)


def group(rows: Sequence[Row]) -> Columns:
    """Rows as frames: series present in the same rows share one."""
    presence: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        for key in row.cells:
            presence.setdefault(key, []).append(index)
    cadences: dict[tuple[int, ...], list[str]] = {}
    for key, indexes in presence.items():
        cadences.setdefault(tuple(indexes), []).append(key)
    grouped = Columns()
    for indexes_, keys in cadences.items():
        chosen = [rows[i] for i in indexes_]
        columns = {key: _column(grouped, [row.cells[key] for row in chosen]) for key in keys}
        grouped.frames.append(([r.step for r in chosen], [r.at for r in chosen], columns))
    return grouped


def _column(grouped: Columns, values: list[Any]) -> list[Any]:
    if set(map(type, values)) <= {float}:
        grouped.values += len(values)
        return values
    cells = [_number(value) for value in values]
    absent = sum(cell is None for cell in cells)
    grouped.values += len(cells) - absent
    grouped.unusable += absent
    return cells


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def encode_batch(envelope: Mapping[str, Any], columns: Columns, records: Sequence[Record]) -> bytes:
    """A batch as UTF-8 JSON, as the wire module would write it. ``envelope`` has the scalars."""
    head = _dump(dict(envelope) | {"v": WIRE_VERSION})
    frames = ",".join(_encode_frame(*frame) for frame in columns.frames)
    noted = ",".join(_dump(to_plain(record)) for record in records)
    text = f'{head[:-1]},"frames":[{frames}],"records":[{noted}]}}'
    return text.encode("utf-8", "replace")


def _encode_frame(steps: list[int], times: list[float], columns: dict[str, list[Any]]) -> str:
    cells = ",".join(f"{_dump(str(key))}:{_encode_column(c)}" for key, c in columns.items())
    return f'{{"steps":{_dump(steps)},"times":{_dump(times)},"columns":{{{cells}}}}}'


def _encode_column(cells: list[Any]) -> str:
    try:
        return _dump(cells)
    except ValueError:  # something in it is not finite
        return _dump([None if cell is None else to_cell(cell) for cell in cells])


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
