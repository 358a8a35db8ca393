"""Ingest: from a body to an acknowledged batch, stored once.

Body -> ``inflating`` -> ``parsing`` (or ``refusing``) -> one transaction that appends the batch to
the run's log and lays its records into their tables. The receipt is given when it is on disk.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from monitor.clock import Clock, monotonic_s
from monitor.domain.log import ColumnFrame, LogEntry, Matrix
from monitor.domain.run import LIVE_STATES, Attempt, Run, RunState
from monitor.services.inflating import inflate
from monitor.services.parsing import count_values, parse
from monitor.services.screening import MAX_LISTED, Parsed
from monitor.services.tuning import note_config
from monitor.storage.base import Database, UnitOfWork
from trainer_hooks.wire import (
    MAX_SERIES_PER_RUN,
    Answer,
    AttemptStart,
    Event,
    Heartbeat,
    Phase,
    Receipt,
    Record,
    RunEnd,
    RunStart,
    SeriesSpec,
    to_plain,
)

_DELAY_S = 60.0
_PRESSING = 3
_PRESSED_FOR_S = 0.05
_JUMP = 100


@dataclass(slots=True)
class _Known:
    """What is known to be committed of a run: asked of the database once, not with every batch."""

    series: set[str] = field(default_factory=set)
    attempts: set[str] = field(default_factory=set)
    current: str | None = None


class Ingest:
    """Takes batches. One instance serves all threads.

    ``clock`` gives the server's wall time (seconds UTC), by which arrival is judged.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self._under_way = 0
        self._pressed_at = float("-inf")

    def pressed(self) -> bool:
        """Whether several batches are, or were a moment ago, under way at once."""
        return monotonic_s() - self._pressed_at < _PRESSED_FOR_S

    def accept(self, body: bytes, content_encoding: str | None = None) -> Receipt:
        """Store the batch of a body and say what became of every value of it.

        A batch that is held already is a no-op: its receipt counts all values as duplicate. A
        single bad value or record is refused by frame, series and row, and the rest is stored.

        Raises:
            MalformedBody, TooLarge, UnsupportedCoding, Unprocessable: nothing was stored.
            Gone: the run was deleted.
            Unavailable: the database cannot take it now; the same batch may be sent again.
        """
        with self._counting():
            return self.store(parse(inflate(body, content_encoding)))

    @contextmanager
    def _counting(self) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
            if self._under_way >= _PRESSING:
                self._pressed_at = monotonic_s()
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def store(self, parsed: Parsed) -> Receipt:
        """Store a batch that is parsed already. Raises as ``accept`` does."""
        now = self._clock()
        before = self._known.get(parsed.run) or _Known()
        receipt, known = self._database.write(
            lambda work: _Storing(work, parsed, now, before).run()
        )
        if len(self._known) > 1000:
            self._known.clear()
        self._known[parsed.run] = known
        return receipt


class _Storing:
    """One batch in one transaction."""

    def __init__(self, work: UnitOfWork, parsed: Parsed, now: float, before: _Known) -> None:
        self._work = work
        self._parsed = parsed
        self._now = now
        self._known = _Known(before.series, before.attempts, before.current)
        self._refusals = parsed.refusals.copy()

    def run(self) -> tuple[Receipt, _Known]:
        parsed, work = self._parsed, self._work
        run = work.runs.ensure(parsed.run, at=self._now)
        frames = self._name_series()
        values = parsed.values - (self._refusals.values - parsed.refusals.values)
        entry = LogEntry(
            run=parsed.run,
            pos=0,
            kind="batch",
            at=self._now,
            attempt=parsed.attempt,
            source=parsed.source,
            seq=parsed.seq,
            through_step=parsed.through_step,
            frames=frames,
            records=parsed.records,
            note=_note(parsed),
        )
        refused = self._refusals.values
        if work.log.head(parsed.run) == 0:
            note_config(work, parsed.run, at=self._now)
        appended = work.log.append_batch(entry, values=values, refused=refused)
        if appended.pos is None:
            held = Receipt(
                parsed.run, parsed.seq, appended.held_through, duplicate=values + refused
            )
            return held, self._known
        self._lay_out(run, frames, appended.pos)
        receipt = Receipt(
            run=parsed.run,
            seq=parsed.seq,
            held_through=appended.held_through,
            stored=values,
            refused_values=refused,
            refused_records=self._refusals.records,
            refused=self._refusals.listed[:MAX_LISTED],
        )
        return receipt, self._known

    def _name_series(self) -> tuple[ColumnFrame, ...]:
        """See that every series has a number; the frames without those there is no room for."""
        specs = [record for record in self._parsed.records if isinstance(record, SeriesSpec)]
        known = self._known.series
        if not specs and all(known.issuperset(frame.columns) for frame in self._parsed.frames):
            return self._parsed.frames
        self._work.log.lock(self._parsed.run)
        held = {series.key for series in self._work.series.all(self._parsed.run)}
        wanted = [*specs, *(SeriesSpec(key=key, name=key) for key in _ordered(self._parsed))]
        new = dict.fromkeys(spec.key for spec in wanted if spec.key not in held)
        room = MAX_SERIES_PER_RUN - len(held)
        outside = set(list(new)[room:])
        self._work.series.ensure(
            self._parsed.run, [spec for spec in wanted if spec.key not in outside]
        )
        self._known.series = held | (set(new) - outside)
        if not outside:
            return self._parsed.frames
        frames = (self._within(i, f, outside) for i, f in enumerate(self._parsed.frames))
        return tuple(frame for frame in frames if frame.columns)

    def _within(self, index: int, frame: ColumnFrame, outside: set[str]) -> ColumnFrame:
        reason = f"a run has at most {MAX_SERIES_PER_RUN:,} series"
        for key in frame.columns:
            if key in outside:
                alone = dataclasses.replace(frame, columns={key: frame.columns[key]})
                self._refusals.value(reason, frame=index, series=key, count=count_values(alone))
        kept = {key: column for key, column in frame.columns.items() if key not in outside}
        return dataclasses.replace(frame, columns=kept)

    def _lay_out(self, run: Run, frames: tuple[ColumnFrame, ...], pos: int) -> None:
        parsed, work = self._parsed, self._work
        begun = self._begin_attempt(frames)
        self._records(parsed.records, pos)
        if parsed.bystander:  # no sign of life of the training
            return
        moves = run.state == "lost" or (run.state == "stalled" and bool(frames))
        if moves or (begun and run.state not in LIVE_STATES):
            work.runs.set_state(run.id, "running", at=self._now, error=None)
        self._end(parsed.records)
        work.runs.touch(
            run.id,
            at=self._now,
            last_step=self._last_step(self._before(run) if begun else run.last_step, frames),
            skew_s=self._skew(run),
        )

    def _begin_attempt(self, frames: tuple[ColumnFrame, ...]) -> bool:
        """Store the attempt, declared or inferred; True where a new one has begun."""
        parsed, runs = self._parsed, self._work.runs
        begun = False
        starts = [record for record in parsed.records if isinstance(record, AttemptStart)]
        for start in starts:
            begun |= runs.begin_attempt(_to_attempt(parsed, start))
        if not starts and parsed.attempt not in self._known.attempts:
            first = min((int(frame.steps.min()) for frame in frames), default=0)
            runs.infer_attempt(parsed.run, parsed.attempt, at=self._now, first_step=first)
        if starts or parsed.attempt not in self._known.attempts:
            held = runs.attempts(parsed.run)
            self._known.attempts = {attempt.id for attempt in held}
            self._known.current = held[-1].id
        return begun

    def _records(self, records: Iterable[Record], pos: int) -> None:
        parsed, work = self._parsed, self._work
        answers: list[Answer] = []
        for record in records:
            match record:
                case RunStart():
                    work.runs.describe(parsed.run, record, at=self._now)
                case Event():
                    work.events.add_event(parsed.run, parsed.attempt, record, pos=pos)
                case Phase():
                    work.events.add_phase(parsed.run, parsed.attempt, record, pos=pos)
                case Answer():
                    answers.append(record)
                case Heartbeat():
                    counts = to_plain(record)
                    work.log.note_client(parsed.run, parsed.attempt, parsed.source, counts)
                case _:
                    pass
        work.answers.add(parsed.run, parsed.attempt, answers, at=self._now)

    def _end(self, records: Iterable[Record]) -> None:
        """An attempt's end ends the run, unless a later attempt has begun meanwhile."""
        run, attempt = self._parsed.run, self._parsed.attempt
        for end in (record for record in records if isinstance(record, RunEnd)):
            self._work.runs.end_attempt(
                run, attempt, at=end.at, status=end.status, last_step=end.last_step
            )
            if attempt == self._work.runs.attempts(run)[-1].id:
                state: RunState = end.status
                self._work.runs.set_state(run, state, at=self._now, error=end.error)

    def _before(self, run: Run) -> int | None:
        """Where an attempt that begins now takes a run back to that has steps already."""
        starts = [r.first_step for r in self._parsed.records if isinstance(r, AttemptStart)]
        return None if run.last_step is None else max(0, min(starts) - 1)

    def _last_step(self, before: int | None, frames: tuple[ColumnFrame, ...]) -> int | None:
        if self._parsed.attempt != self._known.current:
            return before
        through = self._parsed.through_step
        if through is None:
            through = _confirmed(before, frames)
        steps = [step for step in (before, through) if step is not None]
        return max(steps, default=None)

    def _skew(self, run: Run) -> float:
        """How far the trainer's clock is ahead of ours, seconds.

        A batch that waited in a spool is old, not sent by a slow clock: one that is behind counts
        only while its sender says that nothing waits.
        """
        ahead = self._parsed.sent_at - self._now
        beats = [record for record in self._parsed.records if isinstance(record, Heartbeat)]
        waited = not any(beat.spooled == 0 for beat in beats)
        return run.clock_skew_s if ahead < -_DELAY_S and waited else ahead


def _note(parsed: Parsed) -> dict[str, bool]:
    said = {"sanitized": parsed.sanitized, "bystander": parsed.bystander}
    return {name: True for name, is_so in said.items() if is_so}


def _ordered(parsed: Parsed) -> Iterable[str]:
    return dict.fromkeys(key for frame in parsed.frames for key in frame.columns)


def _to_attempt(parsed: Parsed, start: AttemptStart) -> Attempt:
    return Attempt(
        run=parsed.run,
        id=parsed.attempt,
        ordinal=start.ordinal,
        first_step=start.first_step,
        started_at=start.at,
        parent=start.parent,
        reason=start.reason,
    )


def _confirmed(before: int | None, frames: tuple[ColumnFrame, ...]) -> int | None:
    """The highest step that is no lone leap: one far ahead waits until a second confirms it."""
    found = [frame.steps for frame in frames if isinstance(frame.columns, Matrix) or frame.columns]
    if not found:
        return before
    steps = np.unique(np.concatenate(found))
    if before is not None:
        steps = np.append(before, steps[steps > before])
    if len(steps) < 2:
        return int(steps[-1])
    gaps = np.diff(steps)
    usual = max(1, int(np.median(gaps[:-1]))) if len(gaps) > 1 else 1
    return int(steps[-2] if gaps[-1] > _JUMP * usual else steps[-1])
