"""Thinning a curve to what can be drawn, without losing what must be seen.

An ``Envelope`` is a curve whose every row stands for one point or for many: their mean, and the
lowest and highest of them. Thinning joins rows, so a spike stays in ``high`` (or ``low``) and a
non-finite point stays in ``non_finite`` at every zoom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.domain.log import Floats, Ints, Mask, Points

MAX_MARKS = 1000


@dataclass(frozen=True, slots=True)
class Envelope:
    """Rows [N] by rising step. ``values`` are means of the finite points, NaN where there is none.

    ``steps`` and ``times`` are those of a row's first point, ``counts`` how many it stands for,
    finite or not, and ``broken`` how many of these are not. ``non_finite`` [M] are the steps of
    points that are not finite.
    """

    steps: Ints
    times: Floats
    values: Floats
    low: Floats
    high: Floats
    counts: Ints
    broken: Ints
    non_finite: Ints

    def __len__(self) -> int:
        return len(self.steps)

    def where(self, mask: Mask, marks: Mask) -> Envelope:
        """The rows and the marks that are chosen."""
        return Envelope(
            self.steps[mask],
            self.times[mask],
            self.values[mask],
            self.low[mask],
            self.high[mask],
            self.counts[mask],
            self.broken[mask],
            self.non_finite[marks],
        )


def of_points(points: Points) -> Envelope:
    """Each point as a row of its own."""
    finite = np.isfinite(points.values)
    values = np.where(finite, points.values, np.nan)
    ones = np.ones(len(points), np.int64)
    broken = (~finite).astype(np.int64)
    marks = points.steps[~finite]
    return Envelope(points.steps, points.times, values, values, values, ones, broken, marks)


def joined(parts: Sequence[Envelope]) -> Envelope:
    """All rows of the parts, by step."""
    if len(parts) == 1:
        return parts[0]
    steps = np.concatenate([part.steps for part in parts])
    order = np.argsort(steps, kind="stable")
    return Envelope(
        steps[order],
        np.concatenate([part.times for part in parts])[order],
        np.concatenate([part.values for part in parts])[order],
        np.concatenate([part.low for part in parts])[order],
        np.concatenate([part.high for part in parts])[order],
        np.concatenate([part.counts for part in parts])[order],
        np.concatenate([part.broken for part in parts])[order],
        np.unique(np.concatenate([part.non_finite for part in parts])),
    )


def thin(envelope: Envelope, max_rows: int) -> Envelope:
    """At most ``max_rows`` rows that cover every one given, and at most 1,000 marks."""
    marks = _thin_marks(envelope.non_finite)
    rows = len(envelope)
    if rows <= max_rows:
        return Envelope(
            envelope.steps,
            envelope.times,
            envelope.values,
            envelope.low,
            envelope.high,
            envelope.counts,
            envelope.broken,
            marks,
        )
    starts = np.unique(np.linspace(0, rows, max_rows, endpoint=False).astype(np.int64))
    finite = np.isfinite(envelope.values)
    weights = np.where(finite, envelope.counts - envelope.broken, 0).astype(np.float64)
    total = np.add.reduceat(weights, starts)
    some = total > 0
    sizes = np.diff(np.append(starts, rows))
    # Each share is divided before it is added: the sum of large values may overflow.
    shares = weights / np.repeat(np.where(some, total, 1.0), sizes)
    mean = np.add.reduceat(np.where(finite, envelope.values, 0.0) * shares, starts)
    low = np.minimum.reduceat(np.where(finite, envelope.low, np.inf), starts)
    high = np.maximum.reduceat(np.where(finite, envelope.high, -np.inf), starts)
    return Envelope(
        envelope.steps[starts],
        envelope.times[starts],
        np.where(some, mean, np.nan),
        np.where(some, low, np.nan),
        np.where(some, high, np.nan),
        np.add.reduceat(envelope.counts, starts),
        np.add.reduceat(envelope.broken, starts),
        marks,
    )


def _thin_marks(marks: Ints) -> Ints:
    if len(marks) <= MAX_MARKS:
        return marks
    chosen = np.linspace(0, len(marks) - 1, MAX_MARKS).astype(np.int64)
    return marks[chosen]
