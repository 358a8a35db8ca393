"""Entries of a run's log: what was accepted, in the order of its positions.

Numbers are numpy columns here. Non-finite values are themselves (IEEE); an absent value is said by
the mask, never by NaN, because NaN is a fact of its own.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class ColumnFrame:
    """A frame as arrays: ``steps`` [S], ``times`` [S] (seconds UTC), one column per series key."""

    steps: Ints
    times: Floats
    columns: dict[str, Column]


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
