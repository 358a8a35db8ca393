"""The newest values of runs, kept in memory and brought up to date from the log when asked.

One ``Recent`` per run that somebody looked at: last value per series, a thinned line of the train
loss, and the pace. What was sealed away before we first looked is read once from the buckets.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from monitor.domain.log import Column, ColumnFrame, LogEntry, Matrix
from monitor.storage.base import UnitOfWork
from trainer_hooks.wire import AttemptStart

SPARK_KEY = "loss/train"
SPARK_POINTS = 120
PACE_STEPS = 256
PAGE = 500
KEPT_RUNS = 512
BRIEF_KEYS = ("tokens_seen", "tokens_per_s")
"""Of these alone a list of runs shows the newest value."""


@dataclass(frozen=True, slots=True)
class Last:
    """The newest value of a series: its step, the client's time, the value (may be non-finite)."""

    step: int
    at: float
    value: float


@dataclass(slots=True)
class Line:
    """At most ``SPARK_POINTS`` points of a rising series: every other one goes when it is full."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    stride: int = 1

    def add(self, step: int, value: float) -> None:
        self.cut(step)
        if self.steps and step - self.steps[-1] < self.stride:
            return
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > SPARK_POINTS:
            self.steps, self.values = self.steps[::2], self.values[::2]
            self.stride = self.steps[-1] - self.steps[-2]

    def cut(self, step: int) -> None:
        """Forget this step and all above: a rewind."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.values.pop()


@dataclass(slots=True)
class Recent:
    """What is known of a run up to position ``pos`` of its log.

    Of one that is not ``whole`` only the line and the brief keys were looked for in the store.
    """

    pos: int = 0
    whole: bool = False
    values: dict[str, Last] = field(default_factory=dict)
    spark: Line = field(default_factory=Line)
    pace: list[tuple[int, float]] = field(default_factory=list)
    ordinals: dict[str, int] = field(default_factory=dict)
    newest: int = 0
    _dense: dict[tuple[str, ...], ColumnFrame] = field(default_factory=dict)

    def take(self, entry: LogEntry) -> None:
        """Go on by one entry of the log."""
        self.pos = entry.pos
        for record in entry.records:
            if isinstance(record, AttemptStart):
                self._rewind(entry.attempt, record)
        if self.ordinals.get(entry.attempt, self.newest) >= self.newest:
            for frame in entry.frames:
                self._frame(frame)

    def steps_per_s(self) -> float | None:
        """Optimizer steps a second over the last few hundred; None: too few."""
        if len(self.pace) < 2:
            return None
        (first, began), (last, ended) = self.pace[0], self.pace[-1]
        return (last - first) / (ended - began) if ended > began and last > first else None

    def _rewind(self, attempt: str, start: AttemptStart) -> None:
        self.ordinals[attempt] = start.ordinal
        if start.ordinal > self.newest:
            self.newest = start.ordinal
            self.spark.cut(start.first_step)
            self.pace.clear()
            self.settle()
            self.values = {k: v for k, v in self.values.items() if v.step < start.first_step}

    def _frame(self, frame: ColumnFrame) -> None:
        """A dense frame is looked at when values are asked for: only its like's newest counts."""
        columns = frame.columns
        dense = isinstance(columns, Matrix) and columns.present is None
        keys = tuple(columns)
        if SPARK_KEY in keys:
            self._loss(frame, columns[SPARK_KEY])
        if not dense:
            self._values(frame)
            return
        known = self._dense.get(keys)
        if len(frame.steps) and (known is None or frame.steps[-1] >= known.steps[-1]):
            self._dense[keys] = frame

    def settle(self) -> None:
        """Bring ``values`` up to date."""
        for frame in self._dense.values():
            self._values(frame)
        self._dense.clear()

    def _values(self, frame: ColumnFrame) -> None:
        for key, column in frame.columns.items():
            rows = _rows_of(frame, column)
            if not rows:
                continue
            row = rows[-1]
            step = int(frame.steps[row])
            known = self.values.get(key)
            if known is None or step >= known.step:
                self.values[key] = Last(step, float(frame.times[row]), float(column.values[row]))

    def _loss(self, frame: ColumnFrame, column: Column) -> None:
        for row in _rows_of(frame, column):
            step = int(frame.steps[row])
            if not self.spark.steps or step > self.spark.steps[-1]:
                self.spark.add(step, float(column.values[row]))
            if not self.pace or step > self.pace[-1][0]:
                self.pace.append((step, float(frame.times[row])))
        del self.pace[:-PACE_STEPS]


def _rows_of(frame: ColumnFrame, column: Column) -> Sequence[int]:
    if column.present is None:
        return range(len(frame.steps))
    rows: list[int] = column.present.nonzero()[0].tolist()
    return rows


class Latest:
    """``Recent`` by run, the least recently asked for forgotten first. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, tuple[threading.Lock, Recent]] = OrderedDict()

    def of(self, uow: UnitOfWork, run: str) -> Recent:
        """What is known of the run now. Read it, do not change it."""
        lock, recent = self._held(run)
        with lock:
            first = uow.log.first(run)
            if _is_behind(recent, first) or not recent.whole:
                recent = _from_store(uow, {run: first}, whole=True)[run]
                self._keep(run, lock, recent)
            _read_on(uow, run, recent)
        return recent

    def brief(self, uow: UnitOfWork, runs: Sequence[str]) -> dict[str, Recent]:
        """What a list shows of each run: a few questions, however many runs. As ``of``."""
        bounds = uow.glances.bounds(runs)
        behind = {
            run: first
            for run, (first, _) in bounds.items()
            if _is_behind(self._held(run)[1], first)
        }
        begun = _from_store(uow, behind, whole=False)
        found: dict[str, Recent] = {}
        for run in runs:
            lock, recent = self._held(run)
            with lock:
                if run in begun and _is_behind(recent, behind[run]):
                    recent = begun[run]
                    self._keep(run, lock, recent)
                if recent.pos < bounds.get(run, (1, 0))[1]:
                    _read_on(uow, run, recent)
                recent.settle()
            found[run] = recent
        return found

    def _held(self, run: str) -> tuple[threading.Lock, Recent]:
        with self._lock:
            held = self._runs.setdefault(run, (threading.Lock(), Recent()))
            self._runs.move_to_end(run)
            while len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
            return held

    def _keep(self, run: str, lock: threading.Lock, recent: Recent) -> None:
        with self._lock:
            self._runs[run] = (lock, recent)

    def forget(self, run: str) -> None:
        with self._lock:
            self._runs.pop(run, None)


def _is_behind(recent: Recent, first: int) -> bool:
    """We never looked, or not for so long that the log went on without us."""
    return recent.pos == 0 or recent.pos < first - 1


def _read_on(uow: UnitOfWork, run: str, recent: Recent) -> None:
    while entries := uow.log.read(run, after=recent.pos, limit=PAGE):
        for entry in entries:
            recent.take(entry)
    recent.settle()


def _from_store(uow: UnitOfWork, firsts: Mapping[str, int], *, whole: bool) -> dict[str, Recent]:
    """What the logs no longer hold, by run; ``firsts`` are the positions they still begin at."""
    begun = {run: Recent(pos=first - 1, whole=whole) for run, first in firsts.items()}
    runs = [run for run, first in firsts.items() if first > 1]
    if not runs:
        return begun
    for run, attempts in uow.glances.attempts(runs).items():
        begun[run].ordinals = {attempt.id: attempt.ordinal for attempt in attempts}
        begun[run].newest = max(begun[run].ordinals.values())
    for run, lasts in uow.glances.lasts(runs, None if whole else BRIEF_KEYS).items():
        ordinals = begun[run].ordinals
        # A later attempt counts, though the one it took over from had come further.
        for key, bucket in sorted(
            lasts, key=lambda one: (ordinals[one[1].attempt], one[1].last_step)
        ):
            value = bucket.last if bucket.last is not None else float(bucket.last_kind or "nan")
            begun[run].values[key] = Last(bucket.last_step, bucket.first_time, value)
    for run, line in uow.glances.lines(runs, SPARK_KEY, points=SPARK_POINTS // 2).items():
        for step, mean in line:
            begun[run].spark.add(step, mean)
    return begun
