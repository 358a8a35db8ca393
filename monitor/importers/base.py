"""What every importer speaks: raw rows in, an imported log out, and an account of what was left.

A reader turns the bytes of one format into ``RawRow``s under the log's own column names. All that
comes after (names, numbers, steps, attempts) is the same for every format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_hooks.wire import Event, Frame, RunKind, Scalar, SeriesSpec

MAX_ROWS = 5_000_000
MAX_INFLATED_BYTES = 2 * 1024**3
MAX_REASONS = 200


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the log has it. ``number`` is its line or record, counted from 1."""

    number: int
    cells: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows or values that were not taken: why, how many, and the first of them."""

    reason: str
    count: int
    first_row: int


@dataclass(slots=True)
class Tally:
    """Counts what is left out, by reason. Beyond ``MAX_REASONS`` the rest share one."""

    counts: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave(self, reason: str, row: int, count: int = 1) -> None:
        """Note that ``count`` values or rows were left out, the first in row ``row``."""
        if reason not in self.counts and len(self.counts) >= MAX_REASONS:
            reason = "other reasons"
        held = self.counts.setdefault(reason, [0, row])
        held[0] += count

    def note(self, text: str) -> None:
        """Say something about how the log was read, once."""
        if text not in self.notes:
            self.notes.append(text)

    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(LeftOut(reason, n, row) for reason, (n, row) in self.counts.items())


@dataclass(frozen=True, slots=True)
class RawLog:
    """What a reader hands on. ``facts`` are fields of ``wire.RunStart`` that the log tells."""

    rows: Iterable[RawRow]
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportedAttempt:
    """One stretch of the log without going back; frames and events by rising step."""

    first_step: int
    last_step: int
    frames: tuple[Frame, ...]
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """A foreign log in our words.

    ``columns`` tells which series each column became; times are seconds since 1970 (UTC).
    """

    format: str
    run_kind: RunKind
    attempts: tuple[ImportedAttempt, ...]
    specs: tuple[SeriesSpec, ...]
    columns: Mapping[str, str]
    facts: Mapping[str, Scalar]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    rows: int

    @property
    def values(self) -> int:
        """Number of values taken."""
        return sum(
            len(column) - column.count(None)
            for attempt in self.attempts
            for frame in attempt.frames
            for column in frame.columns.values()
        )
