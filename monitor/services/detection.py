"""Detection follows each run's log: judgements, alerts, messages and its cursor, in one commit.

The engine's memory is in this process; a snapshot of it is stored at most every 30 s. Whoever takes
a run over restores the snapshot and replays the log up to the cursor with its effects muted, so
that a crash, a restart or a second process neither loses nor repeats a judgement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from monitor.clock import Clock
from monitor.detectors.base import Detector
from monitor.domain.alert import Moment
from monitor.domain.ids import message_id
from monitor.domain.log import LogEntry
from monitor.domain.telling import rule_of, wait_s
from monitor.formats import load_format
from monitor.services.judging import DetectionEngine, Effect
from monitor.services.silencing import plain_rules
from monitor.services.tuning import plain_params
from monitor.storage.base import (
    Cursor,
    Database,
    Fenced,
    OutboxRow,
    Snapshot,
    UnitOfWork,
)

READER = "detection"
GONE = frozenset({"gave_up", "cancelled"})

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """A run this process judges. ``saved_at`` is when its memory was last stored."""

    engine: DetectionEngine
    cursor: Cursor
    renewed_at: float
    saved_at: float
    saved_pos: int


class Detection:
    """Judges runs when asked to; no thread of its own. Safe to run in several processes.

    ``lease_s``: how long another process waits for a run whose judge died (a convenience: the
    cursor's fence is the guarantee). ``told`` is called after a commit that left messages to send.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        owner: str,
        *,
        detectors: Mapping[str, type[Detector]] | None = None,
        told: Callable[[], None] = lambda: None,
        lease_s: float = 10.0,
        snapshot_every_s: float = 30.0,
        entries_per_commit: int = 200,
    ) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._classes = detectors
        self._told = told
        self._lease_s = lease_s
        self._snapshot_every_s = snapshot_every_s
        self._limit = entries_per_commit
        self._held: dict[str, _Held] = {}
        self._at_rest: dict[str, int] = {}

    def run_all(self) -> bool:
        """One round over all runs whose log is ahead; True when some have more to read.

        A run that cannot be judged does not keep the others from it; the first error is raised
        when the round is over.
        """
        more, failed = False, None
        for run in self.behind():
            try:
                more = self.run_once(run) or more
            except Exception as error:
                log.exception("detection of run %s failed", run)
                failed = failed or error
        if failed is not None:
            raise failed
        return more

    def behind(self) -> list[str]:
        """Runs whose log has entries this reader has not judged, or whose memory is due to be
        stored."""
        with self._database.read() as uow:
            heads = uow.log.heads()
            for run in self._held.keys() - heads.keys():
                del self._held[run]  # deleted
            return [run for run, head in heads.items() if self._is_behind(uow, run, head)]

    def _is_behind(self, uow: UnitOfWork, run: str, head: int) -> bool:
        held = self._held.get(run)
        if held is None:
            if self._at_rest.get(run) != head:
                pos = uow.readers.positions(run).get(READER, 0)
                if head > pos:
                    return True
                self._at_rest[run] = head
            return False
        return head > held.cursor.pos or self._snapshot_due(held) or held.engine.ended

    def run_once(self, run: str) -> bool:
        """Judge the next entries of a run; True when there may be more at once."""
        held = self._hold(run)
        if held is None:
            return False
        with self._database.read() as uow:
            entries = uow.log.read(run, after=held.cursor.pos, limit=self._limit)
        if not entries:
            self._rest(held)
            return False
        effects = [effect for entry in entries for effect in held.engine.feed(entry)]
        self._commit(held, entries, effects)
        # A change of an alert is itself a log entry, to be passed over in the next round.
        return len(entries) >= self._limit or any(effect.change for effect in effects)

    def close(self) -> None:
        """Store the memory of all runs held and let them go: the next process need not wait."""
        for run, held in list(self._held.items()):
            if held.saved_pos < held.cursor.pos:
                self._save(held)
            self._database.write(partial(_release, run=run, owner=self._owner))
        self._held.clear()

    # -- taking a run --------------------------------------------------------------------------

    def _hold(self, run: str) -> _Held | None:
        held, now = self._held.get(run), self._clock()
        if held is not None and 0 <= now - held.renewed_at < self._lease_s / 3:
            return held
        cursor = self._database.write(
            lambda uow: uow.readers.open(
                run, READER, owner=self._owner, lease_s=self._lease_s
            )
        )  # fmt: skip
        if cursor is None:
            self._held.pop(run, None)
            return None
        if held is not None and held.cursor == cursor:
            held.renewed_at = now
            return held
        self._held[run] = restored = self._restore(cursor, now)
        return restored

    def _restore(self, cursor: Cursor, now: float) -> _Held:
        engine = DetectionEngine(cursor.run, self._classes)
        with self._database.read() as uow:
            snapshot = uow.readers.load_snapshot(cursor.run, READER)
            pos = 0
            if snapshot is not None and engine.restore(snapshot.state):
                pos = snapshot.pos
            elif uow.log.first(cursor.run) > 1:
                engine.adopt(uow.alerts.of_run(cursor.run))
                engine.set_rules(plain_rules(uow))
                engine.set_params(plain_params(uow))
            saved_pos = pos
            while pos < cursor.pos:
                entries = uow.log.read(cursor.run, after=pos, limit=self._limit)
                muted = [entry for entry in entries if entry.pos <= cursor.pos]
                for entry in muted:
                    engine.feed(entry)
                if not muted:
                    break
                pos = muted[-1].pos
        return _Held(engine, cursor, now, now, saved_pos)

    # -- committing ----------------------------------------------------------------------------

    def _commit(self, held: _Held, entries: Sequence[LogEntry], effects: Sequence[Effect]) -> None:
        pos, now = entries[-1].pos, self._clock()
        due = self._snapshot_due(held) or held.engine.ended
        state = held.engine.snapshot() if due else None
        run = held.cursor.run

        def work(uow: UnitOfWork) -> tuple[Cursor, int]:
            cursor = uow.readers.move(held.cursor, pos)
            if state is not None:
                uow.readers.save_snapshot(Snapshot(run, READER, pos, state))
            return cursor, write_effects(uow, run, effects, now)

        try:
            held.cursor, messages = self._database.write(work)
        except Fenced:
            self._held.pop(run, None)  # another process has it
            return
        except BaseException:
            self._held.pop(run, None)  # memory is ahead of the store: restore it next time
            raise
        if state is not None:
            held.saved_at, held.saved_pos = now, pos
        if messages:
            self._told()

    def _snapshot_due(self, held: _Held) -> bool:
        waited = self._clock() - held.saved_at >= self._snapshot_every_s
        return waited and held.saved_pos < held.cursor.pos

    def _rest(self, held: _Held) -> None:
        """Nothing to read: store what is due, and forget a run that has ended."""
        ended = held.engine.ended
        if self._snapshot_due(held) or (ended and held.saved_pos < held.cursor.pos):
            self._save(held)
        if ended:
            self._held.pop(held.cursor.run, None)

    def _save(self, held: _Held) -> None:
        """Store the memory as of the cursor, unless another process has moved it meanwhile."""
        cursor, state = held.cursor, held.engine.snapshot()

        def work(uow: UnitOfWork) -> None:
            uow.readers.move(cursor, cursor.pos)
            uow.readers.save_snapshot(Snapshot(cursor.run, READER, cursor.pos, state))

        try:
            self._database.write(work)
        except Fenced:
            self._held.pop(cursor.run, None)
            return
        held.saved_at, held.saved_pos = self._clock(), cursor.pos


def doubts(uow: UnitOfWork, run: str) -> dict[str, str]:
    """Detectors that cannot tell yet, and what it would take, as of the last snapshot."""
    snapshot = uow.readers.load_snapshot(run, READER)
    found = snapshot.state.get("doubts") if snapshot is not None else None
    return dict(found) if isinstance(found, dict) else {}


def _release(uow: UnitOfWork, *, run: str, owner: str) -> None:
    uow.readers.release(run, READER, owner=owner)


def write_effects(uow: UnitOfWork, run: str, effects: Sequence[Effect], now: float) -> int:
    """Alerts, their changes, log notes and messages; how many messages wait to be sent.

    Of effects without a change of state (newer evidence) only the last per alert is written.
    """
    last = {effect.alert.id: index for index, effect in enumerate(effects)}
    messages = 0
    for index, effect in enumerate(effects):
        if effect.change is None and last[effect.alert.id] != index and effect.tell is None:
            continue
        uow.alerts.save(effect.alert, effect.change)
        if effect.change is not None:
            change = effect.change
            note = {
                "alert": change.alert,
                "old": change.old,
                "new": change.new,
                "reason": change.reason,
                "step": change.step,
                "by": change.by,
            }
            uow.log.append_note(run, "alert", note, at=now)
            uow.outbox.release(at=now, alert=change.alert)
        messages += _enqueue(uow, effect, now)
    return messages


def _enqueue(uow: UnitOfWork, effect: Effect, now: float) -> int:
    tell = effect.tell or _seen(effect)
    if tell is None:
        return 0
    if tell == "resolved":
        channels = _told_channels(uow, effect, now)
    elif tell == "acknowledged":
        channels = _lasting_channels(uow, effect)
    else:
        channels = [channel.id for channel in uow.channels.all() if channel.enabled]
    rows = [
        OutboxRow(
            id=message_id(effect.alert.id, channel, tell, effect.telling),
            run=effect.alert.run,
            alert=effect.alert.id,
            channel=channel,
            moment=tell,
            created_at=now,
            due_at=now + wait_s(effect.alert.detector, tell),
            detector=rule_of(effect.alert),
            severity=effect.alert.severity,
        )
        for channel in channels
    ]
    uow.outbox.enqueue(rows)
    return len(rows)


def _seen(effect: Effect) -> Moment | None:
    """An acknowledgement is told to receivers that keep alerts themselves, and to nobody else."""
    change = effect.change
    return "acknowledged" if change is not None and change.new == "acknowledged" else None


def _lasting_channels(uow: UnitOfWork, effect: Effect) -> list[str]:
    """Channels whose receiver has the alert, or is about to get it, and keeps a state of it."""
    lasting = {one.id for one in uow.channels.all() if load_format(one.format).lasting}
    if not lasting:
        return []
    return [
        row.channel
        for row, _ in uow.outbox.of_alert(effect.alert.id)
        if row.moment == "opened" and row.channel in lasting and row.state not in GONE
    ]


def _told_channels(uow: UnitOfWork, effect: Effect, now: float) -> list[str]:
    """Channels that learnt of the opening, so that they are told of the end.

    An episode that closed before its message left sends nothing at all - unless it closed because
    the run ended: then the opening still goes out, for it may be why the run ended.
    """
    ended = effect.alert.resolved_reason == "run_ended"
    if not ended:
        uow.outbox.cancel(effect.alert.id, moment="opened", at=now)
        uow.outbox.cancel(effect.alert.id, moment="reminder", at=now)
    sent = {"sent", "folded"} if ended else {"sent", "sending", "folded"}
    return [
        row.channel
        for row, tries in uow.outbox.of_alert(effect.alert.id)
        if row.moment == "opened" and (row.state in sent or (tries and row.state == "waiting"))
    ]
