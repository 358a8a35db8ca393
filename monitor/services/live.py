"""The live stream: what is new in the logs of the runs a tab shows, told once and in order.

Nothing is queued per browser: a listener has a place in each log and asks for what comes after it,
so one that stops reading costs nothing, and one that comes back goes on exactly where it was. Who
is too far behind is told to start over (``resync``). The messages of a log entry are made once and
shared by all who listen. No transaction is open while anybody waits.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor.clock import Clock, monotonic_s
from monitor.domain.log import ColumnFrame, LogEntry
from monitor.services.cursors import Place, encode_cursor
from monitor.services.overview import Overview
from monitor.storage.base import Database, UnitOfWork
from trainer_hooks.wire import Event, Phase, to_cell, to_plain

PAGE = 100
FARTHEST_BACK = 1_000
"""Entries a listener may be behind before it is told to start over."""

KEPT_ENTRIES = 2_000
SUMMARY_S = 1.0


@dataclass(frozen=True, slots=True)
class Message:
    """One event of the stream: its name, its JSON, and the cursor after it."""

    event: str
    data: str
    id: str = ""

    def encode(self) -> bytes:
        """As server-sent event. JSON has no raw line breaks, so one data line is enough."""
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}event: {self.event}\ndata: {self.data}\n\n".encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Part:
    """A message of one entry, before it is known to whom it goes."""

    event: str
    data: str


@dataclass(slots=True)
class Listener:
    """One open stream. ``places`` is None for the list of runs; ``since`` is when it began."""

    loop: asyncio.AbstractEventLoop
    places: dict[str, Place] | None
    since: float = 0.0
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    dirty: set[str] = field(default_factory=set)
    told: dict[str, tuple[object, ...]] = field(default_factory=dict)
    summaries: dict[str, float] = field(default_factory=dict)

    @property
    def cursor(self) -> str:
        return encode_cursor(self.places or {})

    def wants(self, run: str) -> bool:
        return self.places is None or run in self.places

    def wake(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self.woken.set)
        except RuntimeError:
            pass  # The loop has ended; so has this listener.


class Live:
    """Shared by all streams of a process."""

    def __init__(self, database: Database, overview: Overview, clock: Clock = monotonic_s) -> None:
        self._database = database
        self._overview = overview
        self._clock = clock
        self._lock = threading.Lock()
        self._by_id: dict[int, Listener] = {}
        self._parts: OrderedDict[tuple[str, int], tuple[Part, ...]] = OrderedDict()
        self.closed = False

    # From the store's and from the server's threads.

    def appended(self, run: str, pos: int) -> None:
        """For ``Database.on_append``: wake who listens to this run."""
        with self._lock:
            listeners = [one for one in self._by_id.values() if one.wants(run)]
            for listener in listeners:
                listener.dirty.add(run)
        for listener in listeners:
            listener.wake()

    def close(self) -> None:
        """All streams say goodbye and end."""
        self.closed = True
        with self._lock:
            listeners = list(self._by_id.values())
        for listener in listeners:
            listener.wake()

    def __len__(self) -> int:
        return len(self._by_id)

    # From a stream.

    def join(self, listener: Listener) -> None:
        with self._lock:
            self._by_id[id(listener)] = listener

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self._by_id.pop(id(listener), None)

    def heads(self, runs: Iterable[str]) -> dict[str, Place]:
        """The places after all there is now. A run nobody knows yet has an empty log."""
        with self._database.read() as uow:
            return {run: (uow.log.head(run), 0) for run in runs}

    def take(self, listener: Listener) -> tuple[list[Message], bool]:
        """What is new for the listener, whose place moves on; and whether there is more."""
        with self._lock:
            dirty, listener.dirty = listener.dirty, set()
        with self._database.read() as uow:
            if listener.places is None:
                return self._news(uow, listener, dirty), False
            messages: list[Message] = []
            more = False
            for run in sorted(listener.places):
                said, left = self._follow(uow, listener, run)
                messages.extend(said)
                more = more or left
                if run in dirty or said:
                    messages.extend(self._summary(uow, listener, run))
            return messages, more

    def _follow(self, uow: UnitOfWork, listener: Listener, run: str) -> tuple[list[Message], bool]:
        places = listener.places
        assert places is not None  # noqa: S101 - narrows for the type checker
        pos, sent = places[run]
        head = uow.log.head(run)
        if pos > head or pos < uow.log.first(run) - 1 or head - pos > FARTHEST_BACK:
            places[run] = (head, 0)
            return [Message("resync", "{}", listener.cursor)], False
        entries = self._entries(uow, run, pos, head)
        messages = []
        for at, parts in entries:
            for number, part in enumerate(parts):
                if number < sent:
                    continue
                last = number == len(parts) - 1
                places[run] = (at, 0) if last else (at - 1, number + 1)
                messages.append(Message(part.event, part.data, listener.cursor))
            places[run] = (at, 0)
            sent = 0
        return messages, bool(entries) and entries[-1][0] < head

    def _entries(
        self, uow: UnitOfWork, run: str, pos: int, head: int
    ) -> list[tuple[int, tuple[Part, ...]]]:
        """The next entries' messages, from memory where another stream has just made them."""
        found: list[tuple[int, tuple[Part, ...]]] = []
        with self._lock:
            while pos + len(found) < head and len(found) < PAGE:
                at = pos + len(found) + 1
                parts = self._parts.get((run, at))
                if parts is None:
                    break
                found.append((at, parts))
        if found or pos >= head:
            return found
        for entry in uow.log.read(run, after=pos, limit=PAGE):
            parts = tuple(self._parts_of(uow, entry))
            found.append((entry.pos, parts))
            with self._lock:
                self._parts[(run, entry.pos)] = parts
                while len(self._parts) > KEPT_ENTRIES:
                    self._parts.popitem(last=False)
        return found

    def _parts_of(self, uow: UnitOfWork, entry: LogEntry) -> Iterable[Part]:
        if entry.frames:
            rows = points_rows(entry.frames)
            if rows:
                body = {"run": entry.run, "attempt": entry.attempt, "rows": rows}
                yield Part("points", _dump(body))
        for record in entry.records:
            if isinstance(record, (Event, Phase)):
                body = {"run": entry.run, "attempt": entry.attempt, **to_plain(record)}
                yield Part("event" if isinstance(record, Event) else "phase", _dump(body))
        alert_id = entry.note.get("alert")
        if isinstance(alert_id, str):
            alert = uow.alerts.get(alert_id)
            if alert is not None:
                yield Part("alert", _dump(self._overview.alert(uow, alert)))

    def _news(self, uow: UnitOfWork, listener: Listener, dirty: set[str]) -> list[Message]:
        """For the list of runs: summaries, and alerts that are not as they were told last."""
        messages: list[Message] = []
        for run in sorted(dirty):
            messages.extend(self._summary(uow, listener, run))
            for alert in uow.alerts.of_run(run, open_only=False):
                now = (alert.state, alert.severity, alert.acknowledged_at)
                over = alert.resolved_at is not None and alert.resolved_at < listener.since
                if not over and listener.told.get(alert.id) != now:
                    listener.told[alert.id] = now
                    view = self._overview.alert(uow, alert)
                    messages.append(Message("alert", _dump(view)))
        return messages

    def _summary(self, uow: UnitOfWork, listener: Listener, run: str) -> list[Message]:
        """At most one a second; one that was too early is due at the next wake-up."""
        now = self._clock()
        if now - listener.summaries.get(run, -SUMMARY_S) < SUMMARY_S:
            with self._lock:
                listener.dirty.add(run)
            return []
        stored = uow.runs.get(run)
        if stored is None or stored.deleted:
            return []
        listener.summaries[run] = now
        return [Message("run", _dump(self._overview.summary(uow, stored)), listener.cursor)]


def points_rows(frames: Iterable[ColumnFrame]) -> dict[str, list[list[Any]]]:
    """Rows [step, time, value] by series key, over all frames of an entry."""
    rows: dict[str, list[list[Any]]] = {}
    for frame in frames:
        steps, times = frame.steps.tolist(), frame.times.tolist()
        for key, column in frame.columns.items():
            values = column.values.tolist()
            present: Sequence[int] = range(len(steps))
            if column.present is not None:
                present = column.present.nonzero()[0].tolist()
            if present:
                line = rows.setdefault(key, [])
                line.extend(
                    [steps[row], to_cell(times[row]), to_cell(values[row])] for row in present
                )
    return rows


def _dump(value: object) -> str:
    return json.dumps(to_plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
