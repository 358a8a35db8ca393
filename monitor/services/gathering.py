"""From entries of the log to the points of each series, many frames at a time.

Frames of one cadence have the same keys, batch after batch: they are laid side by side as one
matrix, and a series is a row of it. Column by column it would cost a thousand times the calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitor.domain.block import Ranked, merge
from monitor.domain.log import ColumnFrame, Floats, LogEntry, Mask, Matrix

Place = tuple[str, str]
"""A series key and an attempt."""


@dataclass(slots=True)
class _Strip:
    """Frames of the same attempt and keys, in the order they came."""

    frames: list[ColumnFrame] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)


def gather(
    entries: Iterable[LogEntry], keys: Collection[str] | None = None
) -> dict[Place, list[Ranked]]:
    """Parts of each (series key, attempt) in the order they came; ``keys`` None: of all series.

    A part may hold a step twice, and parts may overlap: ``block.merge`` settles it by rank.
    """
    strips: dict[tuple[str, tuple[str, ...]], _Strip] = {}
    for entry in entries:
        for frame in entry.frames:
            strip = strips.setdefault((entry.attempt, _keys(frame)), _Strip())
            strip.frames.append(frame)
            strip.ranks.append(entry.seq)
    places: dict[Place, list[Ranked]] = {}
    for (attempt, names), strip in strips.items():
        chosen = [row for row, name in enumerate(names) if keys is None or name in keys]
        if not chosen:
            continue
        for row, part in _rows(strip, chosen):
            places.setdefault((names[row], attempt), []).append(part)
    return places


def _keys(frame: ColumnFrame) -> tuple[str, ...]:
    columns = frame.columns
    return columns.keys_K if isinstance(columns, Matrix) else tuple(columns)


def gather_merged(
    entries: Iterable[LogEntry], keys: Collection[str] | None = None
) -> dict[Place, Ranked]:
    """As ``gather``, each place merged."""
    return {place: merge(parts) for place, parts in gather(entries, keys).items()}


def _rows(strip: _Strip, chosen: list[int]) -> Iterable[tuple[int, Ranked]]:
    steps = np.concatenate([frame.steps for frame in strip.frames])
    times = np.concatenate([frame.times for frame in strip.frames])
    sizes = [len(frame.steps) for frame in strip.frames]
    ranks = np.repeat(np.array(strip.ranks, np.int64), sizes)
    matrices = [_matrix(frame) for frame in strip.frames]
    values_KS = np.concatenate([values for values, _ in matrices], axis=1)
    present_KS = _presence([mask for _, mask in matrices], sizes, len(values_KS))
    for row in chosen:
        values = values_KS[row]
        if present_KS is None or present_KS[row].all():
            yield row, Ranked(steps, times, values, ranks)
            continue
        mask = present_KS[row]
        if mask.any():
            yield row, Ranked(steps[mask], times[mask], values[mask], ranks[mask])


def _matrix(frame: ColumnFrame) -> tuple[Floats, Mask | None]:
    columns = frame.columns
    if isinstance(columns, Matrix):
        return columns.values_KS, columns.present
    everywhere = np.ones(len(frame.steps), np.bool_)
    masks = [everywhere if c.present is None else c.present for c in columns.values()]
    return np.stack([column.values for column in columns.values()]), np.stack(masks)


def _presence(masks: list[Mask | None], sizes: list[int], rows: int) -> NDArray[np.bool_] | None:
    if all(mask is None for mask in masks):
        return None
    whole = [
        np.ones((rows, size), np.bool_) if mask is None else mask
        for mask, size in zip(masks, sizes, strict=True)
    ]
    return np.concatenate(whole, axis=1)
