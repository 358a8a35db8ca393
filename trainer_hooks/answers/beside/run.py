"""The run that answers belong to, as the server tells it, and the way there.

Batches go out as a bystander's: they are no sign of life of the training, and complete no step.
"""

from __future__ import annotations

import gzip
import json
import logging
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainer_hooks.post.sending import Backoff
from trainer_hooks.transport import Deleted, Refused, Sent, Transport
from trainer_hooks.wire import Answer, Batch, Record, encode

log = logging.getLogger("trainer_hooks")

BATCH_ANSWERS = 16
BATCH_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 15.0


class NotSentError(Exception):
    """The server was away for too long, or would not have it. The job may be tried again."""


class RunUnknownError(Exception):
    """Nobody can say to which attempt of a run the answers belong."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt and the steps it owns: from ``first_step`` to below ``before_step``."""

    id: str
    first_step: int
    before_step: int | None
    started_at: float


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A run as of now. The last attempt is the one that goes on."""

    attempts: tuple[Attempt, ...]
    last_step: int
    state: str = ""

    @property
    def current(self) -> Attempt:
        return self.attempts[-1]

    def owner(self, step: int, modified_at: float) -> Attempt:
        """The attempt that wrote a checkpoint: the last one that had begun and knew this step."""
        fits = [a for a in self.attempts if a.first_step <= step and a.started_at <= modified_at]
        return fits[-1] if fits else self.current


class RunReader:
    """Asks the server about one run.

    Args:
        token: the read token, where the server wants one.
    """

    def __init__(self, server: str, run: str, token: str | None = None) -> None:
        base = server if "://" in server else f"http://{server}"
        self._url = f"{base.rstrip('/')}/api/v1/runs/{quote(run, safe='')}"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.run = run

    def look(self) -> RunSeen:
        """The run as of now.

        Raises:
            RunUnknownError: the server is away, does not know the run, or wants another token.
        """
        try:
            return _seen(self._get())
        except urllib.error.HTTPError as error:
            hint = ": set WATCHKEEPER_READ_TOKEN" if error.code in (401, 403) else ""
            raise RunUnknownError(f"run {self.run}: the server says {error.code}{hint}") from None
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise RunUnknownError(f"run {self.run}: {type(error).__name__}: {error}") from None

    def _get(self) -> Any:
        asked = urllib.request.Request(self._url, headers=self._headers)  # noqa: S310
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return json.load(answer)


def _seen(plain: Any) -> RunSeen:
    attempts = tuple(
        Attempt(one["id"], one["first_step"], one["before_step"], one["started_at"])
        for one in sorted(plain["attempts"], key=lambda one: int(one["ordinal"]))
    )
    if not attempts:
        raise ValueError("it has no attempt yet")
    return RunSeen(attempts, int(plain["last_step"] or 0), str(plain["state"]))


class Way:
    """Sends records of one run, in order, until the server has them.

    Args:
        patience_s: how long to try before a job is given back.
    """

    def __init__(
        self,
        run: str,
        transport: Transport,
        *,
        patience_s: float = 300.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._transport = transport
        self._patience_s = patience_s
        self._sleep = sleep
        self._source = f"sampler-{uuid.uuid4().hex[:12]}"
        self._seq = 0

    def send(self, attempt: str, records: Sequence[Record]) -> None:
        """Send them under an attempt; returns when the last one is stored.

        Raises:
            NotSentError: the server was away for too long, or refused them.
        """
        for part in _parts(records):
            batch = Batch(
                self._run,
                attempt,
                self._source,
                self._seq,
                time.time(),
                records=list(part),
                bystander=True,
            )
            self._post(gzip.compress(encode(batch), 6))
            self._seq += 1

    def _post(self, body: bytes) -> None:
        backoff = Backoff()
        deadline = time.monotonic() + self._patience_s
        while True:
            outcome = self._transport.post(body)
            if isinstance(outcome, Sent):
                if outcome.receipt.refused_records:
                    log.warning("refused: %s", outcome.receipt.refused[:3])
                return
            if isinstance(outcome, (Refused, Deleted)):
                raise NotSentError(outcome.why)
            wait_s = backoff.fail(outcome.after_s)
            if time.monotonic() + wait_s > deadline:
                raise NotSentError(outcome.why)
            self._sleep(wait_s)


def _parts(records: Sequence[Record]) -> list[list[Record]]:
    """Pieces that fit into a body."""
    parts: list[list[Record]] = [[]]
    size = 0
    for record in records:
        more = _size(record)
        if parts[-1] and (len(parts[-1]) >= BATCH_ANSWERS or size + more > BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += more
    return [part for part in parts if part]


def _size(record: Record) -> int:
    """About how many bytes of JSON."""
    if not isinstance(record, Answer):
        return 500
    return 4 * len(record.text) + 2 * len(record.prompt) + 80 * len(record.token_ids) + 1000
