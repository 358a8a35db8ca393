"""The run as the server sees it: its id, its attempts, and the client that carries everything.

Nothing is sent before the loop does something, so that ``load_state_dict`` can still say which run
this is; where the run's id was given, the run shows at once.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trainer_hooks.client import Client
from trainer_hooks.loop.facts import complete
from trainer_hooks.loop.options import Options
from trainer_hooks.loop.state import State, find_origin, new_attempt_id, spool_root, write_state
from trainer_hooks.post.beside import Beside
from trainer_hooks.post.frames import Row
from trainer_hooks.post.intake import Intake
from trainer_hooks.post.ping import make_ping
from trainer_hooks.post.sender import Identity
from trainer_hooks.spool import run_folder
from trainer_hooks.transport import Transport
from trainer_hooks.wire import AttemptStart, EndStatus, Record, RunEnd, RunStart, SeriesSpec

log = logging.getLogger("trainer_hooks")


class Link:
    """Run, attempt and client of one watch."""

    def __init__(
        self,
        options: Options,
        facts: RunStart,
        specs: Sequence[SeriesSpec],
        beside: Beside | None = None,
    ) -> None:
        self._options = options
        self._facts = facts
        self._specs = list(specs)
        self._beside = beside
        self._root = spool_root(options.spool_dir)
        self._origin = find_origin(
            run=options.run, state_file=options.state_file, name=options.name, root=self._root
        )
        earlier = self._origin.earlier
        self.run = self._origin.run
        self.attempt = new_attempt_id()
        self.ordinal = earlier.ordinal + 1 if earlier else 1
        self.parent = earlier.attempt if earlier else None
        self.client: Client | None = None
        self.begun = False
        self._reason = "restart" if earlier else ""
        resumes = earlier is not None and self._origin.resumes_step
        self.start_step = earlier.step if earlier and resumes else 0
        self.start_tokens = earlier.tokens_seen if earlier and resumes else 0
        self._state: State | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the run's id was given, so that the run may show at once."""
        return self._origin.is_settled

    def resume(self, state: State) -> None:
        """A checkpoint says where this goes on: before the first step, or as a rewind after it."""
        if self.client is None and not self._origin.is_settled:
            self.run = state.run
        if state.run != self.run:
            log.warning("the checkpoint is of run %s, this is run %s", state.run, self.run)
        if self.begun:
            self.rewind()
            return
        self.ordinal = max(self.ordinal, state.ordinal + 1)
        self.parent, self._reason = self.parent or state.attempt, "resume"

    def rewind(self) -> None:
        """The loop went back without a restart: what follows is a new attempt."""
        self.ordinal += 1
        self.parent, self._reason = self.attempt, "rewind"
        self.attempt = new_attempt_id()
        self.begun = False

    def open(self) -> Client:
        """The client, started on first use."""
        if self.client is None:
            self.client = self._start_client()
        return self.client

    def begin(self, first_step: int) -> None:
        """The attempt begins with this step; a fresh run owns its step 0 too."""
        client = self.open()
        if self.begun:
            return
        self.begun = True
        if self._beside is not None:
            folder = run_folder(self._root, self.run)
            self._beside.remember_in(folder, continues=self.ordinal > 1)
        first = 0 if self.ordinal == 1 and first_step <= 1 else first_step
        start = AttemptStart(self.ordinal, first, time.time(), self.parent, self._reason)
        client.intake.begin_attempt(self.attempt, start)

    def put(self, row: Row, *, urgent: bool = False) -> None:
        """A row, to be sent."""
        if self.client is not None:
            self.client.intake.put(row, urgent=urgent)

    def note(self, record: Record) -> None:
        """A record, to be sent under the present attempt."""
        if self.client is not None:
            self.client.intake.note(self.attempt, record)

    def reached(self, step: int, tokens_seen: int) -> None:
        """How far training is, for the state file."""
        self._state = State(self.run, self.attempt, self.ordinal, step, tokens_seen)

    def state(self, step: int, tokens_seen: int) -> dict[str, Any]:
        """What a checkpoint has to hold."""
        return asdict(State(self.run, self.attempt, self.ordinal, step, tokens_seen))

    def end(self, status: EndStatus, error: str | None, last_step: int, timeout_s: float) -> None:
        """Send the last words and close."""
        client = self.open()
        step = last_step if last_step > 0 else None
        client.close(RunEnd(status, time.time(), step, error), timeout_s=timeout_s)

    def _start_client(self) -> Client:
        options = self._options
        identity = Identity(self.run, uuid.uuid4().hex[:12], options.address)
        transport = Transport(options.address, token=options.ingest_token, proxies=options.proxies)
        client = Client(
            identity,
            transport,
            self._root,
            cap_bytes=options.spool_bytes,
            after_flush=self._save_state,
            beside=self._beside,
            ping=make_ping(options.ping_url, proxies=options.proxies),
        )
        intake = client.intake
        intake.begin_attempt(self.attempt)
        intake.set_facts(self._facts)
        intake.declare(self._specs)
        client.start()
        finder = threading.Thread(
            target=_find_facts, args=(self._facts, intake), name="watchkeeper-facts", daemon=True
        )
        finder.start()
        return client

    def _save_state(self) -> None:
        """On the collector thread."""
        state, path = self._state, self._origin.state_path
        if state is None or path is None:
            return
        try:
            write_state(path, state)
        except OSError as error:
            log.debug("the state file cannot be written: %s", error)


def _find_facts(facts: RunStart, intake: Intake) -> None:
    """Git and packages take a while: not on the training thread, and the run need not wait."""
    try:
        intake.set_facts(complete(facts))
    except Exception:
        intake.account.count_error()
        log.warning("some facts of the run could not be found", exc_info=True)
