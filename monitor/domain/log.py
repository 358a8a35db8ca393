"""Entries of a run's log: what was accepted, in the order of its positions.

Numbers are numpy columns here. Non-finite values are themselves (IEEE); an absent value is said by
the mask, never by NaN, because NaN is a fact of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.wire import Record

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

EntryKind = Literal["batch", "tick", "acknowledge", "resolve", "accept", "config", "alert"]
"""``batch`` came from a client; ``tick`` is server time passing; the rest are people's acts and
the changes of alerts."""


@dataclass(frozen=True, slots=True)
class Column:
    """One series in one frame: ``values`` [S] and ``present`` [S] (None: all are)."""

    values: Floats
    present: Mask | None = None


class Matrix(Mapping[str, Column]):
    """Columns that lie together: ``values`` [K, S] and ``present`` [K, S] (None: all are).

    A frame of hundreds of series and few rows is read and written as the one array it is.
    """

    __slots__ = ("_rows", "keys_K", "present", "values_KS")

    def __init__(self, keys: tuple[str, ...], values: Floats, present: Mask | None = None) -> None:
        self.keys_K = keys
        self.values_KS = values
        self.present = present
        self._rows: dict[str, int] | None = None

    def __getitem__(self, key: str) -> Column:
        if self._rows is None:
            self._rows = {name: row for row, name in enumerate(self.keys_K)}
        row = self._rows[key]
        return Column(self.values_KS[row], None if self.present is None else self.present[row])

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys_K)

    def __len__(self) -> int:
        return len(self.keys_K)


@dataclass(frozen=True, slots=True)
class ColumnFrame:
    """A frame as arrays: ``steps`` [S], ``times`` [S] (seconds UTC), one column per series key."""

    steps: Ints
    times: Floats
    columns: Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One row of the log. ``at`` is the server's instant of acceptance (seconds UTC).

    For kind ``batch`` the attempt, source, seq, frames and records are those accepted (what was
    refused is not in it). For the other kinds ``note`` holds what happened.
    """

    run: str
    pos: int
    kind: EntryKind
    at: float
    attempt: str = ""
    source: str = ""
    seq: int = -1
    through_step: int | None = None
    frames: tuple[ColumnFrame, ...] = ()
    records: tuple[Record, ...] = ()
    note: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one series and attempt by rising step: steps, times and values, all [N]."""

    steps: Ints
    times: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)


def empty_points() -> Points:
    """No points at all."""
    return Points(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.float64))
