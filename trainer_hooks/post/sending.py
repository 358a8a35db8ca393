"""Sending what lies in a spool: the oldest batch first, its answer booked, the next.

The same code serves a live client, the next process that finds an earlier one's leftovers, and
``watchkeeper sync``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer_hooks.post.account import Account, Tally
from trainer_hooks.post.frames import Columns, encode_batch
from trainer_hooks.post.segment import Head, make_entry
from trainer_hooks.spool import Spool, SpoolBusyError, find_leftovers
from trainer_hooks.transport import Deleted, Outcome, Refused, RetryLater, Sent, Transport
from trainer_hooks.wire import Heartbeat

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 15.0


@dataclass(slots=True)
class Backoff:
    """How long to wait after failures in a row: doubling, with jitter; the server's wish wins."""

    failures: int = 0
    # Its own generator: the one that the training script seeds is not ours to draw from.
    _random: random.Random = field(default_factory=random.Random)

    def succeed(self) -> None:
        """Begin anew."""
        self.failures = 0

    def fail(self, wish_s: float | None) -> float:
        """Seconds to wait now."""
        self.failures += 1
        if wish_s is not None:
            return wish_s + self._random.uniform(0, 0.25)
        longest: float = min(FIRST_BACKOFF_S * 2 ** min(self.failures - 1, 8), MAX_BACKOFF_S)
        return longest * self._random.uniform(0.5, 1.0)


@dataclass(slots=True)
class Outbox:
    """A spool with the account its values are booked on."""

    spool: Spool
    account: Account

    def post_first(self, transport: Transport) -> Outcome | None:
        """Post the oldest batch and book the answer; None if there is none."""
        entry = self.spool.first()
        self.account.move(self.spool.take_lost(), "spooled", "dropped")
        if entry is None:
            return None
        head, body = entry
        outcome = transport.post(body)
        if not isinstance(outcome, (RetryLater, Deleted)):
            self._book(head, body, outcome)
        return outcome

    def give_up(self) -> None:
        """The run was deleted on the server: what is unsent is dropped, and counted."""
        with self.account.lock:
            self.account.move(self.account.read().spooled, "spooled", "dropped")
        self.spool.forget()

    def _book(self, head: Head, body: bytes, outcome: Sent | Refused) -> None:
        if isinstance(outcome, Refused):
            self.spool.set_aside(head, body, outcome.why)
            self.account.move(head.values, "spooled", "refused")
        else:
            receipt = outcome.receipt
            self.account.settle(
                head.values, duplicate=receipt.duplicate, refused=receipt.refused_values
            )
        self.spool.settle(head)


@dataclass(slots=True)
class Leftover:
    """What an earlier process could not send. Its account is closed when all is delivered."""

    outbox: Outbox
    last: Head | None = None
    closed: bool = False

    @property
    def run(self) -> str:
        """The run it belongs to."""
        return str(self.outbox.spool.meta.get("run", ""))

    def post_next(self, transport: Transport) -> Outcome | None:
        """Post one more batch, at last the closing account; None once the folder is gone."""
        spool = self.outbox.spool
        entry = spool.first()
        if entry is None:
            return self._close_account(transport)
        self.last = entry[0]
        outcome = self.outbox.post_first(transport)
        if isinstance(outcome, Deleted):
            self._remove()
        return outcome

    def release(self) -> None:
        """Leave the rest for another process."""
        if not self.closed:
            self.outbox.spool.release(self.outbox.account.read())

    def _remove(self) -> None:
        self.outbox.spool.forget()
        self.closed = True

    def _close_account(self, transport: Transport) -> Outcome | None:
        if self.last is None or self.closed:
            self._remove()
            return None
        outcome = transport.post(self._last_words(self.last))
        if not isinstance(outcome, RetryLater):
            self._remove()
        return outcome

    def _last_words(self, last: Head) -> bytes:
        meta, tally = self.outbox.spool.meta, self.outbox.account.read()
        envelope = {
            "run": meta["run"],
            "attempt": last.attempt,
            "source": meta["source"],
            "seq": self.outbox.spool.acked + 1,
            "sent_at": last.at,
        }
        body = encode_batch(envelope, Columns(), [heartbeat(tally, last.at)])
        return make_entry(envelope, values=0, acked=-1, tally=tally, body=body)[1]


def heartbeat(tally: Tally, at: float, step: int | None = None) -> Heartbeat:
    """Proof of life at an instant (seconds, UTC), with the account."""
    return Heartbeat(at=at, step=step, **asdict(tally))


def adopt(root: Path, *, server: str | None, run: str | None = None) -> Iterator[Leftover]:
    """What processes that are gone left, oldest first: of one run or all, for one server or any."""
    for folder in find_leftovers(root, run):
        try:
            spool, tally = Spool.reopen(folder)
        except (SpoolBusyError, OSError, ValueError, KeyError, TypeError):
            continue
        if server is not None and spool.meta.get("server") != server:
            spool.release()
            continue
        yield Leftover(Outbox(spool, Account(tally)))
