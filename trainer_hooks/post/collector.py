"""The collector thread: what is queued becomes batches in the spool, five times a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer_hooks.post.beside import Beside
from trainer_hooks.post.frames import encode_batch, group
from trainer_hooks.post.intake import Intake, Taken
from trainer_hooks.post.segment import make_entry
from trainer_hooks.post.sender import Flags, Identity, Sender
from trainer_hooks.post.sending import Outbox, heartbeat
from trainer_hooks.wire import Heartbeat, Record, RunEnd

log = logging.getLogger("trainer_hooks")

FLUSH_S = 0.2
HEARTBEAT_S = 5.0
HEARTBEAT_AWAY_S = 60.0
STATE_S = 1.0
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class LastWords:
    """How the run ended, and the monotonic time until which this waits for what goes before."""

    end: RunEnd | None
    until_s: float


class Collector:
    """Builds and spools batches; see ``run``.

    Args:
        last_words: asked when closing.
        beside: fills rows up with what needs no training thread.
        after_flush: called about once a second on this thread (the state file).
    """

    def __init__(
        self,
        identity: Identity,
        intake: Intake,
        outbox: Outbox,
        sender: Sender,
        flags: Flags,
        last_words: Callable[[], LastWords],
        after_flush: Callable[[], None] | None,
        beside: Beside | None = None,
    ) -> None:
        self._identity = identity
        self._intake = intake
        self._outbox = outbox
        self._sender = sender
        self._flags = flags
        self._last_words = last_words
        self._after_flush = after_flush
        self._beside = beside
        self._seq = 0
        self._through: dict[str, int] = {}
        self._beat_at = float("-inf")
        self._state_at = float("-inf")

    def run(self) -> None:
        """Collect until closing; then all that is queued, and the last words."""
        while not self._flags.stopped.is_set():
            closing = self._flags.closing.is_set()
            try:
                self._flush()
                self._tell_state(closing)
                if closing:
                    self._write_last_words()
            except Exception:
                self._intake.account.count_error()
                log.exception("the collector failed; it goes on")
            if closing:
                break
            self._intake.wake.wait(FLUSH_S)
            self._intake.wake.clear()
        self._flags.collected.set()
        self._flags.work.set()

    def _flush(self) -> None:
        """All that waits; while the disk fails and memory is full, the queue counts its losses."""
        while self._outbox.spool.has_room() and not self._flags.deleted.is_set():
            taken = self._intake.take()
            if taken is None:
                break
            self._write(taken)
        if self._flags.deleted.is_set():
            self._intake.clear()
            self._outbox.give_up()
        elif self._beat_is_due():
            self._write(self._intake.nothing())

    def _write(self, taken: Taken, *, last: Sequence[Record] = ()) -> None:
        spool, account = self._outbox.spool, self._intake.account
        self._fill_up(taken)
        columns = group(taken.rows)
        account.move(columns.unusable, "queued", "dropped")
        self._intake.learn(list(columns.keys))
        envelope = self._envelope(taken)
        records = self._records(taken, full=self._seq == 0 or spool.starts_segment())
        body = encode_batch(envelope, columns, [*records, *last])
        tally = account.read()
        tally.move(columns.values, "queued", "spooled")
        head, zipped = make_entry(
            envelope, values=columns.values, acked=spool.acked, tally=tally, body=body
        )
        self._seq += 1
        account.move(columns.values, "queued", "spooled")
        account.move(spool.append(head, zipped), "spooled", "dropped")
        self._flags.work.set()

    def _fill_up(self, taken: Taken) -> None:
        if self._beside is None or not taken.rows:
            return
        account = self._intake.account
        added, sources = self._beside.add_to(taken.rows, account.count_error)
        account.produce(added)
        if sources:
            self._intake.declare(self._beside.source_specs(sources))

    def _envelope(self, taken: Taken) -> dict[str, object]:
        through = self._through.get(taken.attempt, -1)
        through = max([through, *(row.step for row in taken.rows if row.through)])
        self._through[taken.attempt] = through
        return {
            "run": self._identity.run,
            "attempt": taken.attempt,
            "source": self._identity.source,
            "seq": self._seq,
            "sent_at": time.time(),
            "through_step": through if through >= 0 else None,
        }

    def _records(self, taken: Taken, *, full: bool) -> list[Record]:
        head = self._intake.head(taken, full=full)
        said = [record for record in taken.notes if record not in head]
        beat = [self._beat(taken.attempt)] if self._beat_is_due() else []
        return [*head, *said, *beat]

    def _beat_is_due(self) -> bool:
        """Every 5 s; while the server is away once a minute, as nobody can hear it."""
        interval_s = HEARTBEAT_AWAY_S if self._sender.is_failing else HEARTBEAT_S
        return time.monotonic() - self._beat_at >= interval_s

    def _beat(self, attempt: str) -> Heartbeat:
        self._beat_at = time.monotonic()
        through = self._through.get(attempt, -1)
        step = through if through >= 0 else None
        return heartbeat(self._intake.account.read(), time.time(), step)

    def _tell_state(self, closing: bool) -> None:
        now = time.monotonic()
        if self._after_flush is not None and (closing or now - self._state_at >= STATE_S):
            self._state_at = now
            self._after_flush()

    def _write_last_words(self) -> None:
        """Heartbeat and end come after all else, so that the account they carry is final."""
        done = (self._flags.gave_up, self._flags.stopped, self._flags.deleted)
        words = self._last_words()
        while time.monotonic() < words.until_s and not self._outbox.spool.is_empty:
            if any(event.is_set() for event in done):
                break
            time.sleep(POLL_S)
        if self._flags.deleted.is_set():
            return
        taken = self._intake.nothing()
        end = [words.end] if words.end is not None else []
        self._write(taken, last=[self._beat(taken.attempt), *end])
