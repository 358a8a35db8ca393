"""Rows to frames: what follows from what was logged, and the log in the words of the wire."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from monitor.errors import UnreadableLog
from monitor.importers.axis import LONGEST_STEP_S, Stretch, place
from monitor.importers.base import Imported, ImportedAttempt, RawLog, Tally
from monitor.importers.rows import Columns, Row, read_rows
from trainer_hooks.wire import Cell, Frame, RunKind, SeriesSpec, to_cell

EPOCH_2001_S = 978_307_200.0
"""A clock that shows less than this counts from somewhere else than 1970."""
LATEST_S = 32_503_680_000.0
ROWS_PER_FRAME = 1000
CELLS_PER_FRAME = 50_000

_ACCURACIES = ("top1/", "top10/")
_RL = ("reward", "completion_length", "kl")
_PREFERENCE = ("reward_margin", "rewards/margins", "train/rewards/margins")


def assemble(
    form: str, log: RawLog, tally: Tally, mapping: Mapping[str, str], ended_at: float | None
) -> Imported:
    """Read the rows of any format into attempts of frames.

    Args:
        mapping: series key, axis or ``ignore`` by column name; wins over what the name says.
        ended_at: seconds since 1970 (UTC) at which a log without a calendar ended; None: it
            begins at 0.

    Raises:
        UnreadableLog: nothing in it can be taken.
    """
    columns = Columns(mapping, tally)
    rows = read_rows(log.rows, columns)
    if not rows:
        raise UnreadableLog(
            "There is no row with a number in this file.",
            hint="; ".join(left.reason for left in tally.left_out()[:3]),
        )
    _derive(rows, columns)
    stretches = place(rows, tally)
    calendar = _calendar(stretches, ended_at)
    _note_unknown(mapping, columns, tally)
    return Imported(
        format=form,
        run_kind=_kind(columns.specs),
        attempts=tuple(_attempt(stretch, calendar) for stretch in stretches),
        specs=tuple(columns.specs.values()),
        columns=columns.taken(),
        facts=dict(log.facts),
        left_out=tally.left_out(),
        notes=tuple(tally.notes),
        rows=len(rows),
    )


def _note_unknown(mapping: Mapping[str, str], columns: Columns, tally: Tally) -> None:
    for name in mapping:
        if name not in columns.known:
            tally.note(f"the map names a column this log does not have: {name!r}")


def _kind(specs: Mapping[str, SeriesSpec]) -> RunKind:
    names = {key.lower() for key in specs}
    if any(name in names for name in _PREFERENCE):
        return "preference"
    words = {name.replace("train/", "") for name in names}
    return "rl" if len(words & set(_RL)) >= 1 else "pretrain"


# -- what follows from what was logged ----------------------------------------------------------


def _derive(rows: list[Row], columns: Columns) -> None:
    _percent_to_share(rows, columns)
    _step_times(rows, columns)
    _tokens_seen(rows, columns)
    if "entropy/probe" in columns.specs or "confidence/probe" in columns.specs:
        _as_probe(rows, columns)


def _percent_to_share(rows: list[Row], columns: Columns) -> None:
    """Accuracies are shares; a column that goes above 1.5 was logged in per cent."""
    for key in [key for key in columns.specs if key.startswith(_ACCURACIES)]:
        held = [row for row in rows if math.isfinite(row.values.get(key, math.nan))]
        if any(row.values[key] > 1.5 for row in held):
            columns.tally.note(f"{key} was logged in per cent")
            for row in held:
                row.values[key] /= 100.0


def _step_times(rows: list[Row], columns: Columns) -> None:
    """A clock of training alone gives the step time where none was logged."""
    if "step_s" in columns.specs:
        return
    timed = [row for row in rows if "train_time_s" in row.axes and row.step is not None]
    for before, after in pairwise(timed):
        steps = (after.step or 0) - (before.step or 0)
        span = after.axes["train_time_s"] - before.axes["train_time_s"]
        if steps > 0 and 0 < span < LONGEST_STEP_S * steps:
            after.values["step_s"] = span / steps
            columns.specs.setdefault(
                "step_s",
                SeriesSpec("step_s", "step_s", unit="s", family="speed", better="lower"),
            )


def _tokens_seen(rows: list[Row], columns: Columns) -> None:
    if any("tokens" in row.axes for row in rows):
        columns.specs.setdefault("tokens_seen", SeriesSpec("tokens_seen", "tokens_seen"))
        for row in rows:
            if "tokens" in row.axes:
                row.values["tokens_seen"] = row.axes["tokens"]


def _as_probe(rows: list[Row], columns: Columns) -> None:
    """Held-out data whose calibration was measured too is what we call a probe: say so.

    Entropy minus loss is 0 for a calibrated model, and needs no more than these two columns.
    """
    if "loss/heldout" not in columns.specs or "loss/probe" in columns.specs:
        return
    columns.rename("loss/heldout", SeriesSpec("loss/probe", "loss", "probe", "", "nats", "loss"))
    for row in rows:
        loss = row.values.pop("loss/heldout", None)
        if loss is None:
            continue
        row.values["loss/probe"] = loss
        entropy = row.values.get("entropy/probe")
        if entropy is not None:
            row.values["entropy_minus_nll/probe"] = entropy - loss
    if "entropy/probe" in columns.specs:
        key, name = "entropy_minus_nll/probe", "entropy_minus_nll"
        columns.specs[key] = SeriesSpec(key, name, "probe", "", "nats", "calibration")


# -- frames -------------------------------------------------------------------------------------


def _calendar(stretches: Iterable[Stretch], ended_at: float | None) -> float:
    """What to add to the log's times: nothing where they are dates already."""
    times = [time for stretch in stretches for time in stretch.times.values()]
    first, last = min(times, default=0.0), max(times, default=0.0)
    if EPOCH_2001_S <= first <= last <= LATEST_S:
        return 0.0
    return -first if ended_at is None else ended_at - last


def _attempt(stretch: Stretch, calendar: float) -> ImportedAttempt:
    steps = sorted(stretch.values)
    frames, begin = [], 0
    while begin < len(steps):
        end = _frame_end(stretch, steps, begin)
        frames.append(_frame(stretch, steps[begin:end], calendar))
        begin = end
    events = tuple(replace(e, at=_instant(e.at + calendar)) for e in stretch.events)
    return ImportedAttempt(stretch.first_step, steps[-1], tuple(frames), events)


def _frame_end(stretch: Stretch, steps: list[int], begin: int) -> int:
    keys: set[str] = set()
    for index in range(begin, min(begin + ROWS_PER_FRAME, len(steps))):
        keys |= stretch.values[steps[index]].keys()
        if len(keys) * (index - begin + 1) > CELLS_PER_FRAME and index > begin:
            return index
    return min(begin + ROWS_PER_FRAME, len(steps))


def _frame(stretch: Stretch, steps: list[int], calendar: float) -> Frame:
    rows = [stretch.values[step] for step in steps]
    keys = dict.fromkeys(key for row in rows for key in row)
    columns: dict[str, list[Cell]] = {
        key: [to_cell(row[key]) if key in row else None for row in rows] for key in keys
    }
    times = [_instant(stretch.times.get(step, 0.0) + calendar) for step in steps]
    return Frame(steps, times, columns)


def _instant(time_s: float) -> float:
    """A time as the wire takes it: whole milliseconds, between 1970 and the year 3000."""
    return round(min(max(time_s, 0.0), LATEST_S), 3)
