"""Reading curves: sealed blocks and buckets and the unsealed tail of the log, in one snapshot.

A curve is drawn from whatever gives it from the fewest rows: the points themselves where there are
few, buckets of 64, or the summaries of whole blocks. What lies over the edge of a range, what late
points were laid over, and what holds a non-finite value is always opened.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.domain.block import PATCH_TIER, Block, Ranked, by_steps, merge
from monitor.domain.downsample import Envelope, joined, of_points, thin
from monitor.domain.log import Floats, Ints, LogEntry, Mask
from monitor.domain.run import Owned, owned_ranges
from monitor.errors import NotFound
from monitor.services.gathering import Place, gather
from monitor.services.sealing import READER
from monitor.storage.base import Database, UnitOfWork
from monitor.storage.codec import unpack_points

RAW_POINTS = 2000
_OPENED_BLOCKS = 48
_SUMMARY_BLOCKS = 200
_OPENED_MARKS = 64
_CACHED_RUNS = 16
_CACHED_ENTRIES = 512

Resolution = Literal["raw", "bucket", "block"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one series and attempt, owned by it or (``ghost``) superseded by a later one.

    ``steps``, ``times`` and ``values`` [N] by rising step. At ``raw`` the values are the very
    points, non-finite ones included, and ``low`` and ``high`` are None; else each row stands for
    a stretch: its first step and time, and mean, lowest and highest finite value (NaN: none).
    ``non_finite`` [M] are steps whose value is not finite. ``mixed``: of rows that leave some out
    of their mean, their step, how many of their points are not finite, and how many they stand
    for. ``total_points`` counts what is in range.
    """

    key: str
    attempt: str
    ghost: bool
    resolution: Resolution
    steps: Ints
    times: Floats
    values: Floats
    low: Floats | None
    high: Floats | None
    non_finite: Ints
    total_points: int
    mixed: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Curves:
    """An answer as of one moment: ``cursor`` is the last position of the log it contains."""

    run: str
    cursor: int
    series: list[Curve]


@dataclass(frozen=True, slots=True)
class _Range:
    first: int | None
    last: int | None
    max_points: int


class Reading:
    """Reads curves from a database. One instance serves all threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tails = _Tails()

    def points(
        self,
        run: str,
        keys: Sequence[str],
        *,
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int = 1000,
    ) -> Curves:
        """The curves of the keys from one step to another, both included; None: no bound.

        One curve for each key and attempt that has owned points in the range, and one more for
        its ghosts. A curve of at most 2,000 points comes raw (at most twice ``max_points``, if
        that is less); a longer one has at most ``max_points`` rows. Unknown keys are left out.

        Raises:
            NotFound: there is no such run.
        """
        wanted = _Range(from_step, to_step, max(1, max_points))
        with self._database.read() as work:
            found = work.runs.get(run)
            if found is None or found.deleted:
                raise NotFound(f"There is no run {run}.")
            head = work.log.head(run)
            numbers = {series.key: series.number for series in work.series.named(run, keys)}
            ranges = owned_ranges(work.runs.attempts(run))
            places = self._places(work, run, numbers, wanted)
            curves: list[Curve] = []
            for (key, attempt), place in sorted(places.items()):
                owned = next((one for one in ranges if one.attempt == attempt), None)
                rows, resolution = place.read(work, owned)
                curves += _curves(key, attempt, rows, resolution, owned, wanted)
        order = {key: index for index, key in enumerate(keys)}
        ordinals = {one.attempt: one.ordinal for one in ranges}
        curves.sort(key=lambda c: (order[c.key], ordinals.get(c.attempt, -1), c.ghost))
        return Curves(run, head, curves)

    def _places(
        self, work: UnitOfWork, run: str, numbers: dict[str, int], wanted: _Range
    ) -> dict[Place, _Place]:
        sealed = work.readers.positions(run).get(READER, 0)
        tail = gather(self._tails.after(work, run, sealed), set(numbers))
        keys = {number: key for key, number in numbers.items()}
        blocks: dict[Place, list[Block]] = {}
        for block in work.blocks.summaries(
            run, list(keys), first_step=wanted.first, last_step=wanted.last
        ):
            blocks.setdefault((keys[block.series], block.attempt), []).append(block)
        return {
            place: _Place(
                run,
                numbers[place[0]],
                place[1],
                wanted,
                blocks.get(place, []),
                by_steps(merge(tail.get(place, [])), wanted.first, wanted.last),
            )
            for place in {*tail, *blocks}
        }


@dataclass(frozen=True, slots=True)
class _Place:
    """One series of one attempt: its blocks in the range and its unsealed points."""

    run: str
    series: int
    attempt: str
    wanted: _Range
    blocks: list[Block]
    tail: Ranked

    def read(self, work: UnitOfWork, owned: Owned | None) -> tuple[Envelope | Ranked, Resolution]:
        """All points where they are few; else rows that cover them."""
        total = sum(block.summary.count for block in self.blocks) + len(self.tail)
        limit = min(RAW_POINTS, 2 * self.wanted.max_points)
        if total <= limit or len(self.blocks) <= 2:
            points = self._open(work, self.blocks)
            if len(points) <= limit:
                return points, "raw"
            return of_points(points.points()), "bucket"
        must = self._must_open(owned)
        clean = [b for b, opened in zip(self.blocks, must, strict=True) if not opened]
        if len(clean) <= _OPENED_BLOCKS:
            points = self._open(work, self.blocks)
            return (
                (points, "raw")
                if len(points) <= limit
                else (
                    of_points(points.points()),
                    "bucket",
                )
            )
        opened = [b for b, is_open in zip(self.blocks, must, strict=True) if is_open]
        return self._covered(work, clean, opened)

    def _covered(
        self, work: UnitOfWork, clean: list[Block], opened: list[Block]
    ) -> tuple[Envelope, Resolution]:
        parts = [of_points(self._open(work, opened).points())]
        if len(clean) >= _SUMMARY_BLOCKS:
            parts.append(_of_summaries(clean))
            return joined(parts), "block"
        parts.append(self._of_buckets(work, clean))
        return joined(parts), "bucket"

    def _must_open(self, owned: Owned | None) -> list[bool]:
        """Which blocks lie over an edge, under later points, or hold a non-finite value."""
        edges = {self.wanted.first, None if self.wanted.last is None else self.wanted.last + 1}
        if owned is not None:
            edges |= {owned.first_step, owned.before_step}
        cuts = sorted(edge for edge in edges if edge is not None)
        over = [b.summary for b in self.blocks if b.tier == PATCH_TIER]
        spans = [(s.first_step, s.last_step) for s in over]
        marked = 0
        must: list[bool] = []
        for block in self.blocks:
            first, last = block.summary.first_step, block.summary.last_step
            opened = block.tier == PATCH_TIER
            opened |= any(first < edge <= last for edge in cuts)
            opened |= any(low <= last and first <= high for low, high in spans)
            opened |= len(by_steps(self.tail, first, last)) > 0
            if block.summary.non_finite and not opened and marked < _OPENED_MARKS:
                marked += 1
                opened = True
            must.append(opened)
        return must

    def _open(self, work: UnitOfWork, blocks: Sequence[Block]) -> Ranked:
        """The points of these blocks and of the tail, within the range."""
        ids = [block.id for block in blocks if block.id is not None]
        bodies = work.blocks.bodies(ids)
        # In the order they were written: of equal ranks the later wins.
        bodies.sort(key=lambda block: (block.tier == PATCH_TIER, block.id or 0))
        parts = [unpack_points(block.body) for block in bodies]
        return by_steps(merge([*parts, self.tail]), self.wanted.first, self.wanted.last)

    def _of_buckets(self, work: UnitOfWork, clean: list[Block]) -> Envelope:
        rows = work.blocks.bucket_rows(
            self.run,
            self.series,
            self.attempt,
            first_step=clean[0].summary.first_step,
            last_step=max(block.summary.last_step for block in clean),
        )
        table = np.array(rows, np.float64).reshape(len(rows), 7)  # None becomes NaN
        steps = np.array([row[0] for row in rows], np.int64)  # beyond 2^53 too
        firsts = np.array([block.summary.first_step for block in clean], np.int64)
        lasts = np.array([block.summary.last_step for block in clean], np.int64)
        place = np.searchsorted(firsts, steps, "right") - 1
        inside = (place >= 0) & (steps <= lasts[np.maximum(place, 0)])
        table, steps = table[inside], steps[inside]
        marks = steps[table[:, 3] > 0]
        return Envelope(
            steps,
            table[:, 1],
            table[:, 6],
            table[:, 4],
            table[:, 5],
            table[:, 2].astype(np.int64),
            table[:, 3].astype(np.int64),
            marks,
        )


def _of_summaries(blocks: list[Block]) -> Envelope:
    summaries = [block.summary for block in blocks]
    low = np.array([s.low for s in summaries], np.float64)
    high = np.array([s.high for s in summaries], np.float64)
    counts = np.array([s.count for s in summaries], np.int64)
    broken = np.array([s.non_finite for s in summaries], np.int64)
    totals = np.array([s.total for s in summaries], np.float64)
    # A sum that did not fit is not kept: the middle of the range stands for the mean.
    mean = np.where(np.isnan(totals), low / 2 + high / 2, totals / np.maximum(counts - broken, 1))
    marks = [s.first_step for s in summaries if s.non_finite]
    return Envelope(
        np.array([s.first_step for s in summaries], np.int64),
        np.array([s.first_time for s in summaries], np.float64),
        mean,
        low,
        high,
        counts,
        broken,
        np.array(marks, np.int64),
    )


def _curves(
    key: str,
    attempt: str,
    rows: Envelope | Ranked,
    resolution: Resolution,
    owned: Owned | None,
    wanted: _Range,
) -> list[Curve]:
    """The owned part and the ghost of what was read, where there is any."""
    mine = _owned_mask(rows.steps, owned)
    curves: list[Curve] = []
    for ghost, mask in ((False, mine), (True, ~mine)):
        if not mask.any():
            continue
        if isinstance(rows, Ranked):
            curves.append(_raw_curve(key, attempt, ghost, rows, mask))
        else:
            marks = _owned_mask(rows.non_finite, owned) != ghost
            chosen = rows.where(mask, marks)
            curves.append(_thin_curve(key, attempt, ghost, chosen, resolution, wanted.max_points))
    return curves


def _owned_mask(steps: Ints, owned: Owned | None) -> Mask:
    if owned is None:
        return np.zeros(len(steps), np.bool_)
    mine: Mask = steps >= owned.first_step
    if owned.before_step is not None:
        mine = mine & (steps < owned.before_step)
    return mine


def _raw_curve(key: str, attempt: str, ghost: bool, rows: Ranked, mask: Mask) -> Curve:
    steps, values = rows.steps[mask], rows.values[mask]
    return Curve(
        key=key,
        attempt=attempt,
        ghost=ghost,
        resolution="raw",
        steps=steps,
        times=rows.times[mask],
        values=values,
        low=None,
        high=None,
        non_finite=steps[~np.isfinite(values)],
        total_points=len(steps),
    )


def _thin_curve(
    key: str, attempt: str, ghost: bool, rows: Envelope, resolution: Resolution, max_rows: int
) -> Curve:
    thinned = thin(rows, max_rows)
    return Curve(
        key=key,
        attempt=attempt,
        ghost=ghost,
        resolution=resolution,
        steps=thinned.steps,
        times=thinned.times,
        values=thinned.values,
        low=thinned.low,
        high=thinned.high,
        non_finite=thinned.non_finite,
        total_points=int(rows.counts.sum()),
        mixed=_mixed(thinned),
    )


def _mixed(rows: Envelope) -> tuple[tuple[int, int, int], ...]:
    some = (rows.broken > 0) & (rows.counts > 1)
    columns = (rows.steps[some], rows.broken[some], rows.counts[some])
    return tuple(zip(*(column.tolist() for column in columns), strict=True))


class _Tails:
    """Decoded unsealed entries of runs, so that a live run is not decoded anew for every chart.

    A committed position never changes and none comes before it later, so entries are only added
    at the end and forgotten at the beginning.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, list[LogEntry]] = OrderedDict()

    def after(self, work: UnitOfWork, run: str, sealed: int) -> list[LogEntry]:
        """The entries past the sealed position, as of the transaction of ``work``."""
        with self._lock:
            held = [entry for entry in self._runs.get(run, ()) if entry.pos > sealed]
        if held and held[0].pos != sealed + 1:
            held = []  # an older snapshot than the one that was remembered
        head = work.log.head(run)
        held = [entry for entry in held if entry.pos <= head]
        last = held[-1].pos if held else sealed
        while last < head:
            more = work.log.read(run, after=last, limit=_CACHED_ENTRIES)
            if not more:
                break
            held += more
            last = held[-1].pos
        with self._lock:
            self._runs[run] = held[-_CACHED_ENTRIES:]
            self._runs.move_to_end(run)
            while len(self._runs) > _CACHED_RUNS:
                self._runs.popitem(last=False)
        return held
