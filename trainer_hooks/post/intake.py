"""What the training thread hands over: rows and records, in a queue that never makes it wait.

``put`` takes a lock that is only ever held for microseconds, never blocks and never raises. In a
forked child nothing here does anything, and no lock is taken: its owner does not exist there.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainer_hooks.post.account import Account
from trainer_hooks.post.frames import Row
from trainer_hooks.wire import Record, RunStart, SeriesSpec

QUEUE_ROWS = 10_000
QUEUE_BYTES = 32 * 1024 * 1024
QUEUE_NOTES = 1_000
BATCH_ROWS = 512
BATCH_VALUES = 20_000
BATCH_NOTES = 64


@dataclass(slots=True)
class Head:
    """What the first batch and every segment of the spool repeat: facts, attempts, specs."""

    facts: RunStart | None = None
    attempts: dict[str, Record] = field(default_factory=dict)
    specs: dict[str, SeriesSpec] = field(default_factory=dict)
    fresh: deque[Record] = field(default_factory=deque)

    def all(self, attempt: str) -> list[Record]:
        """The facts, where this attempt began, and the specs."""
        facts: list[Record] = [self.facts] if self.facts is not None else []
        began = [self.attempts[attempt]] if attempt in self.attempts else []
        return [*facts, *began, *self.specs.values()]


@dataclass(slots=True)
class Taken:
    """Rows and records of one attempt, at most a batch full. They still count as queued."""

    attempt: str
    rows: list[Row]
    notes: list[Record]


class Intake:
    """The queue between the training thread and the collector."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.wake = threading.Event()
        self.is_shut = False
        self._pid = os.getpid()
        self._rows: deque[Row] = deque()
        self._rows_bytes = 0
        self._notes: deque[tuple[str, Record]] = deque()
        self._head = Head()
        self._attempt = ""

    @property
    def is_here(self) -> bool:
        """False in a forked child, and once it is shut."""
        return not self.is_shut and self._pid == os.getpid()

    def put(self, row: Row, *, urgent: bool = False) -> None:
        """Queue a row. When the queue is full its oldest rows give way, counted."""
        if not self.is_here:
            return
        with self.account.lock:
            self.account.produce(len(row.cells))
            self._rows.append(row)
            self._rows_bytes += row.size
            while len(self._rows) > QUEUE_ROWS or self._rows_bytes > QUEUE_BYTES:
                oldest = self._pop_row()
                self.account.move(len(oldest.cells), "queued", "dropped")
        if urgent:
            self.wake.set()

    def note(self, attempt: str, record: Record) -> None:
        """Queue a record: an event, a phase, an answer. The newest win when there are too many."""
        if not self.is_here:
            return
        with self.account.lock:
            self._notes.append((attempt, record))
            if len(self._notes) > QUEUE_NOTES:
                self._notes.popleft()

    def set_facts(self, facts: RunStart) -> None:
        """Facts of the run, or better ones."""
        self._change(lambda head: setattr(head, "facts", facts), [facts])

    def declare(self, specs: Sequence[SeriesSpec]) -> None:
        """What series are; those never declared get a plain spec of their own."""
        self._change(lambda head: head.specs.update((s.key, s) for s in specs), specs)

    def begin_attempt(self, attempt: str, record: Record | None = None) -> None:
        """Rows and notes come under this attempt from now on; ``record`` says where it began."""
        if not self.is_here:
            return
        with self.account.lock:
            self._attempt = attempt
            if record is not None:
                self._head.attempts[attempt] = record
                self._notes.append((attempt, record))

    def _change(self, change: Callable[[Head], object], fresh: Sequence[Record]) -> None:
        if self.is_here:
            with self.account.lock:
                change(self._head)
                self._head.fresh.extend(fresh)

    # What the collector calls.

    def take(self) -> Taken | None:
        """The oldest of what waits; None if nothing does."""
        with self.account.lock:
            if not (self._rows or self._notes or self._head.fresh):
                return None
            attempt = self._oldest_attempt()
            notes: list[Record] = []
            while self._notes and self._notes[0][0] == attempt and len(notes) < BATCH_NOTES:
                notes.append(self._notes.popleft()[1])
            return Taken(attempt, self._take_rows(attempt), notes)

    def nothing(self) -> Taken:
        """What to send when there is nothing but a heartbeat."""
        with self.account.lock:
            return Taken(self._attempt, [], [])

    def head(self, taken: Taken, *, full: bool) -> list[Record]:
        """Records that go before the others: all of the head, or what is new in it."""
        with self.account.lock:
            head = self._head.all(taken.attempt) if full else list(self._head.fresh)
            self._head.fresh.clear()
            return head

    def learn(self, keys: Sequence[str]) -> None:
        """Series that nobody declared: a plain spec, so that the server knows their names."""
        with self.account.lock:
            unknown = [SeriesSpec(key=k, name=k) for k in keys if k not in self._head.specs]
            self._head.specs.update((spec.key, spec) for spec in unknown)
            self._head.fresh.extend(unknown)

    def clear(self) -> None:
        """Forget what waits: the run was deleted on the server."""
        with self.account.lock:
            self.is_shut = True
            self.account.move(self.account.read().queued, "queued", "dropped")
            self._rows.clear()
            self._notes.clear()

    def _oldest_attempt(self) -> str:
        if self._notes:
            return self._notes[0][0]
        return self._rows[0].attempt if self._rows else self._attempt

    def _take_rows(self, attempt: str) -> list[Row]:
        rows: list[Row] = []
        values = 0
        while self._rows and self._rows[0].attempt == attempt:
            values += len(self._rows[0].cells)
            if len(rows) >= BATCH_ROWS or (rows and values > BATCH_VALUES):
                break
            rows.append(self._pop_row())
        return rows

    def _pop_row(self) -> Row:
        row = self._rows.popleft()
        self._rows_bytes -= row.size
        return row
