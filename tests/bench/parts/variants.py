"""The same runs as a worse line would have brought them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from monitor.domain.log import Column, ColumnFrame, LogEntry
from monitor.services.judging import DetectionEngine
from tests.fixtures.traces import Told, judge
from trainer_hooks.wire import RunEnd

DROPPED_SHARE = 0.2
SHUFFLED_TOGETHER = 8
STEPS_A_BATCH = 64
CADENCE = 50
DENSE_SHARE = 0.5
"""A series with values on more than half of the rows is one of every step."""


def dropped(log: Sequence[LogEntry]) -> list[LogEntry]:
    """One point in five is lost, by chance."""
    chance = np.random.default_rng(0)

    def lose(frame: ColumnFrame) -> ColumnFrame:
        columns = {}
        for key, column in frame.columns.items():
            stays = chance.random(len(frame.steps)) >= DROPPED_SHARE
            given = column.present if column.present is not None else True
            columns[key] = Column(column.values, stays & given)
        return ColumnFrame(frame.steps, frame.times, columns)

    return [replace(entry, frames=tuple(map(lose, entry.frames))) for entry in log]


def sparse(log: Sequence[LogEntry]) -> list[LogEntry]:
    """What is logged at every step comes at one step in fifty; what is rarer stays."""

    def thin(frame: ColumnFrame) -> ColumnFrame:
        due = frame.steps % CADENCE == 0
        columns = {}
        for key, column in frame.columns.items():
            given = column.present if column.present is not None else np.ones(len(due), bool)
            kept = given & due if given.mean() > DENSE_SHARE else given
            if kept.any():
                columns[key] = Column(column.values, kept)
        return ColumnFrame(frame.steps, frame.times, columns)

    return [replace(entry, frames=tuple(map(thin, entry.frames))) for entry in log]


def shuffled(log: Sequence[LogEntry]) -> list[LogEntry]:
    """Batches overtake each other, eight at a time; each says how far all before it have come.

    Attempts do not overtake each other: the next one begins when the last one's batches are there.
    """
    chance, out = random.Random(0), []
    for group in _groups([piece for entry in log for piece in _pieces(entry)]):
        order = list(range(len(group)))
        chance.shuffle(order)
        there: set[int] = set()
        for place in order:
            there.add(place)
            whole = next(n for n in range(len(group) + 1) if n not in there)
            through = group[whole - 1].through_step if whole else _before(group)
            out.append(replace(group[place], through_step=through))
    return [replace(entry, pos=pos) for pos, entry in enumerate(out, start=1)]


def _pieces(entry: LogEntry) -> Iterator[LogEntry]:
    """A large batch as several of few steps, what it tells of the run with the first one."""
    steps = sorted({int(step) for frame in entry.frames for step in frame.steps})
    ends = steps[STEPS_A_BATCH - 1 :: STEPS_A_BATCH]
    if len(steps) <= STEPS_A_BATCH:
        yield entry
        return
    first, records = -1, tuple(r for r in entry.records if not isinstance(r, RunEnd))
    for end in ends if ends[-1] == steps[-1] else [*ends, steps[-1]]:
        frames = tuple(_between(frame, first, end) for frame in entry.frames)
        through = entry.through_step if end == steps[-1] else end
        if end == steps[-1]:
            records += tuple(r for r in entry.records if isinstance(r, RunEnd))
        yield replace(entry, frames=frames, records=records, through_step=through)
        first, records = end, ()


def _between(frame: ColumnFrame, after: int, to: int) -> ColumnFrame:
    inside = (frame.steps > after) & (frame.steps <= to)
    columns = {
        key: Column(column.values[inside], None if column.present is None else
                    column.present[inside])
        for key, column in frame.columns.items()
    }  # fmt: skip
    return ColumnFrame(frame.steps[inside], frame.times[inside], columns)


def _before(group: Sequence[LogEntry]) -> int:
    firsts = [int(frame.steps[0]) for entry in group for frame in entry.frames if len(frame.steps)]
    return min(firsts, default=0) - 1


def _groups(log: Sequence[LogEntry]) -> Iterable[list[LogEntry]]:
    """Runs of plain batches of one attempt; all else stands alone."""
    group: list[LogEntry] = []
    for entry in log:
        plain = entry.kind == "batch" and not entry.records
        if group and (not plain or len(group) == SHUFFLED_TOGETHER):
            yield group
            group = []
        if plain:
            group.append(entry)
        else:
            yield [entry]
    if group:
        yield group


def judge_with_restart(log: Sequence[LogEntry]) -> list[Told]:
    """Judged by one process up to the middle, and on from its snapshot by another."""
    middle = len(log) // 2
    first, second = DetectionEngine("run"), DetectionEngine("run")
    before = judge(log[:middle], first)
    second.restore(json.loads(json.dumps(first.snapshot())))
    return _joined(before, judge(log[middle:], second))


def _joined(before: Sequence[Told], after: Sequence[Told]) -> list[Told]:
    """An episode told of on both sides counts once, as it ended up."""
    said = {(one.detector, one.subject, one.opened): one for one in before}
    return list((said | {(one.detector, one.subject, one.opened): one for one in after}).values())


VARIANTS: dict[str, Callable[[Sequence[LogEntry]], list[Told]]] = {
    "20 % of the points dropped": lambda log: judge(dropped(log)),
    "delivery shuffled": lambda log: judge(shuffled(log)),
    "restart in the middle": judge_with_restart,
    "1-in-50 cadence": lambda log: judge(sparse(log)),
}
