"""Where rows lie: steps where the log has none or begins anew, attempts where it goes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from monitor.importers.base import Tally
from monitor.importers.names import Axis
from monitor.importers.rows import Row
from monitor.importers.stalls import stalls
from trainer_hooks.wire import Event

FEW_REWINDS = 8
REWIND_SHARE = 0.02
"""More steps back than these and than one row in fifty are no resumes: two processes wrote it."""
CYCLE_TOLERANCE = 0.02
LONGEST_STEP_S = 1e6
COUNTERS: tuple[Axis, ...] = ("samples", "tokens")
CLOCKS: tuple[Axis, ...] = ("time_s", "train_time_s")


@dataclass(slots=True)
class Stretch:
    """Rows of one attempt by step: values by series key, and the time where one is known."""

    first_step: int
    values: dict[int, dict[str, float]] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


def place(rows: list[Row], tally: Tally) -> list[Stretch]:
    """Give every row its step and its time, and sort the rows into attempts."""
    placed = [row for row in rows if row.step is not None]
    if not placed:
        placed = rows
        number_rows(rows, tally)
    elif len(placed) < len(rows):
        first = next(row.number for row in rows if row.step is None)
        tally.leave("the row has no step", first, len(rows) - len(placed))
    if not placed:
        return []
    unroll_epochs(placed, tally)
    set_clock(placed, tally)
    return split(placed, tally)


def number_rows(rows: list[Row], tally: Tally) -> None:
    """Count rows where the log has no step; rows at the same sample or token share one."""
    for axis in COUNTERS:
        marks = [row.axes.get(axis) for row in rows]
        if any(mark is not None for mark in marks):
            tally.note(f"no step column: rows are counted, those of equal {axis} as one")
            _count_changes(rows, marks)
            return
    tally.note("no step column: rows are counted")
    for index, row in enumerate(rows):
        row.step = index


def _count_changes(rows: list[Row], marks: list[float | None]) -> None:
    order = {mark: n for n, mark in enumerate(sorted({m for m in marks if m is not None}))}
    step = 0
    for row, mark in zip(rows, marks, strict=True):
        step = step if mark is None else order[mark]
        row.step = step


def unroll_epochs(rows: list[Row], tally: Tally) -> None:
    """Add up the steps of a log whose step begins anew with every epoch."""
    borders = _epoch_borders(rows)
    if not borders:
        return
    strides = [b - a for a, b in pairwise(_step(row) for row in rows) if b > a]
    stride = max(1, int(median(strides))) if strides else 1
    tally.note(f"the step begins anew with each of {len(borders) + 1} epochs: added up")
    offset, before = 0, 0
    for index, row in enumerate(rows):
        if index in borders:
            offset = before + stride - _step(row)
        row.step = before = _step(row) + offset


def _epoch_borders(rows: list[Row]) -> set[int]:
    """Rows that begin a new epoch's count: the step falls back while the epoch goes on."""
    falls = [i for i, (a, b) in enumerate(pairwise(rows), start=1) if _step(b) < _step(a)]
    resets = [i for i in falls if _step(rows[i]) <= _step(rows[0])]
    with_epoch = [i for i in resets if _epoch_goes_on(rows[i - 1], rows[i])]
    if with_epoch and len(with_epoch) == len(falls):
        return set(with_epoch)
    lasts = [_step(rows[i - 1]) for i in resets]
    known = any("epoch" in row.axes for row in rows)
    alike = len(lasts) >= 2 and max(lasts) - min(lasts) <= CYCLE_TOLERANCE * max(lasts)
    return set(resets) if alike and not known and len(resets) == len(falls) else set()


def _epoch_goes_on(before: Row, after: Row) -> bool:
    a, b = before.axes.get("epoch"), after.axes.get("epoch")
    return a is not None and b is not None and b > a


def _step(row: Row) -> int:
    return row.step or 0


def split(rows: list[Row], tally: Tally) -> list[Stretch]:
    """One stretch per attempt: a new one where the log really goes back."""
    starts, falls = _rewinds(rows)
    if falls > max(FEW_REWINDS, REWIND_SHARE * len(rows)):
        tally.note(f"the log goes back {falls} times: read as one run with two writers")
        starts = []
    bounds = [0, *starts, len(rows)]
    if starts:
        first = rows[starts[0]].number
        tally.note(f"the log goes back {len(starts)} times, first at row {first}: new attempts")
    return [_merged(rows[a:b], tally) for a, b in pairwise(bounds)]


def _rewinds(rows: list[Row]) -> tuple[list[int], int]:
    """Rows at which a series goes back and the rows after stay there; how many go back at all.

    A single late row (an evaluation of older weights, a line out of order) goes back alone.
    """
    last: dict[str, int] = {}
    highest, falls, found = -1, 0, []
    for index, row in enumerate(rows):
        step = _step(row)
        if any(last.get(key, -1) > step for key in row.values):
            falls += 1
            after = _step(rows[index + 1]) if index + 1 < len(rows) else step
            if after > highest:
                continue
            found.append(index)
            last, highest = {}, -1
        highest = max(highest, step)
        last.update(dict.fromkeys(row.values, step))
    return found, falls


def _merged(rows: list[Row], tally: Tally) -> Stretch:
    stretch = Stretch(_step(rows[0]))
    for row in rows:
        step = _step(row)
        held = stretch.values.setdefault(step, {})
        for key, value in row.values.items():
            _put(held, key, value, row.number, tally)
        time = row.axes.get("time_s")
        if time is not None:
            stretch.times[step] = max(time, stretch.times.get(step, time))
    stretch.first_step = min(stretch.values)
    stretch.events = sorted(stalls(rows), key=lambda event: event.step)
    return stretch


def _put(held: dict[str, float], key: str, value: float, row: int, tally: Tally) -> None:
    if key in held:
        same = held[key] == value or (held[key] != held[key] and value != value)
        tally.leave("said twice" if same else "two values for one step: the later taken", row)
    held[key] = value


def set_clock(rows: list[Row], tally: Tally) -> None:
    """Give every row a ``time_s`` that never goes back, in seconds.

    From the log's own clock where it goes forward; else from step times added up; else one second
    a step. A training clock that is set back (or to 0) goes on from where it was.
    """
    name = _best_clock(rows)
    if name is None:
        _added_up(rows, tally)
        return
    total = before = None
    for row in rows:
        now = row.axes.get(name)
        if now is not None:
            gain = 0.0 if before is None else now - before
            total = now if total is None else total + max(gain, 0.0)
            before = now
        if total is not None:
            row.axes["time_s"] = total
    first = next(row.axes["time_s"] for row in rows if "time_s" in row.axes)
    for row in rows:
        row.axes.setdefault("time_s", first)


def _best_clock(rows: list[Row]) -> Axis | None:
    for name in CLOCKS:
        read = [row.axes[name] for row in rows if name in row.axes]
        backwards = sum(b < a for a, b in pairwise(read))
        if len(read) > 1 and backwards <= 0.05 * len(read) + 1 and 2 * len(read) >= len(rows):
            return name
    return None


def _added_up(rows: list[Row], tally: Tally) -> None:
    known = [span for row in rows if (span := _step_s(row)) is not None]
    usual = median(known) if known else 1.0
    tally.note(
        "no clock in the log: times are added up from the step times"
        if known
        else "no clock in the log: one second a step is assumed"
    )
    now, before = 0.0, None
    for row in rows:
        passed = 1 if before is None else max(0, _step(row) - before)
        now += (_step_s(row) or usual) if passed == 1 else usual * min(passed, 1_000_000)
        before = _step(row)
        row.axes["time_s"] = now


def _step_s(row: Row) -> float | None:
    span = row.values.get("step_s")
    return span if span is not None and 0 < span < LONGEST_STEP_S else None
