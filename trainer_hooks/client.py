"""The client: takes rows from the training thread and sees them to the server, or to the disk.

Two daemon threads do the work: the *collector* turns what is queued into batches and lays them
into the spool, the *sender* posts the spool's oldest batch and books the answer. So a server that
hangs delays nothing, and a SIGKILL loses one flush interval.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainer_hooks.post.account import Account, Tally
from trainer_hooks.post.beside import Beside
from trainer_hooks.post.collector import Collector, LastWords
from trainer_hooks.post.intake import Intake
from trainer_hooks.post.ping import Ping
from trainer_hooks.post.sender import Flags, Identity, Sender
from trainer_hooks.post.sending import Outbox
from trainer_hooks.spool import CAP_BYTES, Spool, run_folder
from trainer_hooks.transport import Transport
from trainer_hooks.wire import RunEnd

log = logging.getLogger("trainer_hooks")

CLOSE_S = 4.0
WORDS_SHARE = 0.5
"""Of the time for closing: until then the last words wait for what goes before them."""


class Client:
    """Queue, collector and sender of one process. ``start`` it, ``close`` it.

    What is put into ``intake`` leaves within 250 ms while the server answers.

    Args:
        identity: names of run, source and server.
        transport: posts batches; used by the sender thread alone.
        root: folder of all spools.
        after_flush: called on the collector thread about once a second (the state file).
        beside: fills rows up on the collector thread.
        ping: an address elsewhere that is told that this process lives.
    """

    def __init__(
        self,
        identity: Identity,
        transport: Transport,
        root: Path,
        *,
        cap_bytes: int = CAP_BYTES,
        after_flush: Callable[[], None] | None = None,
        beside: Beside | None = None,
        ping: Ping | None = None,
    ) -> None:
        self.identity = identity
        self.account = Account()
        self.intake = Intake(self.account)
        self._transport = transport
        self._root = root
        self._cap_bytes = cap_bytes
        self._after_flush = after_flush
        self._beside = beside
        self._flags = Flags()
        self._ping = ping
        self._sender = Sender(identity, transport, root, self._flags, ping)
        self._pid = os.getpid()
        self._outbox: Outbox | None = None
        self._threads: list[threading.Thread] = []
        self._words = LastWords(None, 0.0)

    def start(self) -> None:
        """Begin to collect and to send. Touches neither disk nor network on this thread."""
        self._spawn("collect", self._collect)

    def tally(self) -> Tally:
        """The account, consistent."""
        return self.account.read()

    def close(self, end: RunEnd | None, *, timeout_s: float = CLOSE_S) -> None:
        """Send what can be sent in time, with ``end`` as the last words; the rest stays on disk."""
        if self._pid != os.getpid() or self._flags.closing.is_set():
            return
        now = time.monotonic()
        deadline = now + timeout_s
        self._words = LastWords(end, now + timeout_s * WORDS_SHARE)
        self._flags.closing.set()
        self.intake.wake.set()
        self._flags.work.set()
        self._join(deadline)
        self.intake.is_shut = True
        self._flags.stopped.set()
        self._flags.collected.set()
        self._transport.abort()
        self._flags.work.set()
        self._join(time.monotonic() + 0.2)
        self._put_away()
        if self._ping is not None and end is not None and end.status == "failed":
            self._ping.fail()

    def _join(self, deadline: float) -> None:
        for thread in self._threads:  # the first one adds the second
            thread.join(max(0.0, deadline - time.monotonic()))

    def _put_away(self) -> None:
        outbox = self._outbox
        if outbox is None or self._flags.deleted.is_set():
            return
        if outbox.spool.is_empty and not self.account.read().queued:
            outbox.spool.forget()
        else:
            outbox.spool.release(self.account.read())

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"watchkeeper-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _collect(self) -> None:
        outbox = self._open()
        collector = Collector(
            self.identity,
            self.intake,
            outbox,
            self._sender,
            self._flags,
            lambda: self._words,
            self._after_flush,
            self._beside,
        )
        self._outbox = outbox
        self._spawn("send", lambda: self._sender.run(outbox))
        collector.run()

    def _open(self) -> Outbox:
        identity = self.identity
        folder = run_folder(self._root, identity.run) / identity.source
        meta = {"run": identity.run, "source": identity.source, "server": identity.server}
        spool = Spool.create(folder, meta, cap_bytes=self._cap_bytes)
        if spool.problem:
            log.warning("no spool on disk (%s): what is unsent lives in memory", spool.problem)
        return Outbox(spool, self.account)
