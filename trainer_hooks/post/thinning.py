"""What gives way when the spool is full: every second row, but never a non-finite one.

Pure: batches as plain JSON values in, fewer and smaller batches out, with the number of values
left out. Only batches that were never attempted may come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MERGED_VALUES = 10_000
RECORDS_ONLY_LEVEL = 8


@dataclass(slots=True)
class Parity:
    """Counts the rows of frames alike, across batches, so that single rows are thinned too."""

    seen: dict[tuple[str, ...], int]

    def kept_rows(self, frame: dict[str, Any]) -> list[int]:
        """Which rows stay: the even ones of a running count, and those with a non-finite value."""
        keys = tuple(frame["columns"])
        start = self.seen.get(keys, 0)
        self.seen[keys] = start + len(frame["steps"])
        odd = {
            row
            for column in frame["columns"].values()
            for row, cell in enumerate(column)
            if isinstance(cell, str)
        }
        return [r for r in range(len(frame["steps"])) if (start + r) % 2 == 0 or r in odd]


def thin(batches: Iterable[dict[str, Any]], level: int) -> Iterator[dict[str, Any]]:
    """Batches of one segment, oldest first, with half of their rows, merged where they are small.

    From ``RECORDS_ONLY_LEVEL`` on all rows go and the records stay.
    """
    parity = Parity({})
    merged: dict[str, Any] | None = None
    for batch in batches:
        thinned = batch | {"frames": _fewer_rows(batch["frames"], parity, level)}
        if merged is not None and _fit_together(merged, thinned):
            merged = _join(merged, thinned)
            continue
        if merged is not None:
            yield merged
        merged = thinned
    if merged is not None:
        yield merged


def count_values(batch: dict[str, Any]) -> int:
    """Non-null cells of a batch."""
    return sum(
        sum(cell is not None for cell in column)
        for frame in batch["frames"]
        for column in frame["columns"].values()
    )


def _fewer_rows(frames: list[dict[str, Any]], parity: Parity, level: int) -> list[dict[str, Any]]:
    if level >= RECORDS_ONLY_LEVEL:
        return []
    kept = ((frame, parity.kept_rows(frame)) for frame in frames)
    return [_pick(frame, rows) for frame, rows in kept if rows]


def _pick(frame: dict[str, Any], rows: list[int]) -> dict[str, Any]:
    return {
        "steps": [frame["steps"][r] for r in rows],
        "times": [frame["times"][r] for r in rows],
        "columns": {k: [column[r] for r in rows] for k, column in frame["columns"].items()},
    }


def _fit_together(one: dict[str, Any], other: dict[str, Any]) -> bool:
    same = one["attempt"] == other["attempt"]
    return same and count_values(one) + count_values(other) <= MERGED_VALUES


def _join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two batches as one, under the later one's number; of heartbeats only the newest stays."""
    frames = {tuple(f["columns"]): f for f in one["frames"]}
    for frame in other["frames"]:
        keys = tuple(frame["columns"])
        frames[keys] = _append(frames[keys], frame) if keys in frames else frame
    fresh = any(r["kind"] == "heartbeat" for r in other["records"])
    older = [r for r in one["records"] if not (fresh and r["kind"] == "heartbeat")]
    return other | {"frames": list(frames.values()), "records": older + other["records"]}


def _append(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        "steps": one["steps"] + other["steps"],
        "times": one["times"] + other["times"],
        "columns": {k: column + other["columns"][k] for k, column in one["columns"].items()},
    }
