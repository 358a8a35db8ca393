"""The sender thread: the spool's oldest batch, its answer, the next; patience where it is needed.

Order: what earlier processes of this run left, then our own, then what other runs left behind.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from trainer_hooks.post.ping import Ping
from trainer_hooks.post.sending import Backoff, Leftover, Outbox, adopt
from trainer_hooks.transport import Deleted, Outcome, RetryLater, Transport

log = logging.getLogger("trainer_hooks")

IDLE_S = 1.0
MAX_LEFTOVERS = 64
"""Held open at once; a later process takes the rest."""
LAST_PAUSE_S = 0.1
FAILING = 2
LAST_TRIES = 5


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run, from which process, to which server."""

    run: str
    source: str
    server: str


@dataclass(slots=True)
class Flags:
    """What the threads of a client tell each other."""

    work: threading.Event = field(default_factory=threading.Event)
    """Something lies in the spool."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Hurry: no long waits any more."""
    collected: threading.Event = field(default_factory=threading.Event)
    """The collector has written its last batch."""
    gave_up: threading.Event = field(default_factory=threading.Event)
    """While closing: the server is away, nobody need wait for it."""
    stopped: threading.Event = field(default_factory=threading.Event)
    """Time is over."""
    deleted: threading.Event = field(default_factory=threading.Event)
    """The server deleted the run."""


class Sender:
    """Posts until it is told to stop; see ``run``."""

    def __init__(
        self,
        identity: Identity,
        transport: Transport,
        root: Path,
        flags: Flags,
        ping: Ping | None = None,
    ) -> None:
        self._identity = identity
        self._transport = transport
        self._root = root
        self._flags = flags
        self._ping = ping
        self._backoff = Backoff()
        self._last_tries = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last two posts or more failed."""
        return self._backoff.failures >= FAILING

    def run(self, own: Outbox) -> None:
        """Send until stopped, or closing and done."""
        earlier = self._find_leftovers(self._identity.run)
        others: list[Leftover] | None = None
        while not self._flags.stopped.is_set() and not self._flags.deleted.is_set():
            try:
                self._flags.work.clear()
                if self._ping is not None and not self._flags.closing.is_set():
                    self._ping.beat()
                outcome = self._send_one(earlier, own, others or [])
                if outcome is None and others is None and not self._flags.closing.is_set():
                    others = self._find_leftovers(None)
                elif not self._go_on(outcome):
                    break
            except Exception:
                own.account.count_error()
                log.exception("the sender failed; it goes on")
                self._flags.closing.wait(IDLE_S)
        for leftover in [*earlier, *(others or [])]:
            leftover.release()
        self._transport.close()

    def _find_leftovers(self, run: str | None) -> list[Leftover]:
        try:
            found = adopt(self._root, server=self._identity.server, run=run)
            return list(islice(found, MAX_LEFTOVERS))
        except OSError:
            return []

    def _send_one(
        self, earlier: list[Leftover], own: Outbox, others: list[Leftover]
    ) -> Outcome | None:
        """One POST; None if there is nothing to post."""
        outcome = self._send_leftover(earlier) or own.post_first(self._transport)
        if isinstance(outcome, Deleted):
            log.warning("server %s: %s; nothing more is sent", self._identity.server, outcome.why)
            self._flags.deleted.set()
            own.give_up()
        return outcome or self._send_leftover(others)

    def _send_leftover(self, leftovers: list[Leftover]) -> Outcome | None:
        while leftovers:
            outcome = leftovers[0].post_next(self._transport)
            if outcome is not None and not isinstance(outcome, Deleted):
                return outcome
            leftovers.pop(0)
        return None

    def _go_on(self, outcome: Outcome | None) -> bool:
        """Wait as the outcome asks; False when there is nothing left to do."""
        if isinstance(outcome, RetryLater):
            return self._wait_out(outcome)
        if outcome is not None:
            self._backoff.succeed()
            return True
        if self._flags.collected.is_set():
            return False
        self._flags.work.wait(IDLE_S)
        return True

    def _wait_out(self, outcome: RetryLater) -> bool:
        wait_s = self._backoff.fail(outcome.after_s)
        if self._backoff.failures == 1:
            log.warning(
                "server %s: %s; training goes on, what is unsent is kept",
                self._identity.server,
                outcome.why,
            )
        if self._flags.closing.is_set():
            return self._try_again_soon(outcome)
        self._flags.closing.wait(wait_s)
        return True

    def _try_again_soon(self, outcome: RetryLater) -> bool:
        """While closing: a server that answers is asked again, one that is away is given up."""
        self._last_tries += 1
        if outcome.status == 0 and self._last_tries >= LAST_TRIES:
            self._flags.gave_up.set()
            self._flags.collected.wait()
            return False
        self._flags.stopped.wait(LAST_PAUSE_S)
        return True
