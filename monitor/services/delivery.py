"""Delivery: claims messages from the outbox, sends them, writes down what came back.

A message is rendered once, at its first claim; every try sends the same bytes under the same id, so
that a receiver can tell a repeat. Tries of a message that was sent but not settled (the process
died in between) are such repeats.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol

from monitor.clock import Clock, monotonic_s
from monitor.domain.ids import message_id
from monitor.domain.secrets import scrub
from monitor.formats import load_format
from monitor.formats.base import AlertText, Format, Message, Request
from monitor.services.episodes import REMIND_AFTER_S
from monitor.services.gates import Gates
from monitor.services.telling import message_for
from monitor.storage.base import (
    Channel,
    Database,
    DeliveryTry,
    OutboxRow,
    OutboxState,
    UnitOfWork,
)

FIRST_PAUSE_S = 5.0
PAUSE_FACTOR = 3.0
LONGEST_PAUSE_S = 600.0
MOST_TRIES = 6
"""5 s, 15 s, 45 s, 2 min, 7 min: what fails for ten minutes is given up, and told once more after
six hours if it is still open. Tries that were cut off by our own end do not count."""
LONGEST_WAIT_S = 600.0
"""A receiver that keeps asking us to wait is given up after so long."""
LONGEST_RETRY_AFTER_S = 600.0
ASKED_TO_WAIT = 429
LEASE_S = 60.0
"""Longer than a try and its fallback take, so that no second process sends what is on its way."""
SHORTEST_HOLD_S = 1.0
JITTER = 0.2
SHOWN_CHARS = 200
RETRIED_STATUS = frozenset({408, 425, 429})

DIGEST_ALERT = {"detector": "digest", "severity": "info", "title": "morning digest"}

log = logging.getLogger(__name__)


class Answered(Protocol):
    """What a sender gives back (``senders.http.Answer``)."""

    @property
    def status(self) -> int | None: ...
    @property
    def error(self) -> str: ...
    @property
    def retry_after(self) -> str: ...
    @property
    def refused(self) -> bool: ...
    @property
    def said(self) -> str: ...


Send = Callable[..., Answered]
"""``send(url, body, headers, method=)``; never raises."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A message with its channel and format, its payload frozen."""

    row: OutboxRow
    channel: Channel
    format: Format
    payload: bytes


class Delivery:
    """Sends what is due when asked to; no thread of its own. Safe in several processes."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        owner: str,
        send: Send,
        *,
        senders: Mapping[str, Send] | None = None,
        base_url: str = "",
        gates: Gates | None = None,
        digest: Callable[[UnitOfWork, OutboxRow], AlertText | None] = lambda uow, row: None,
        seed: int | None = None,
        monotonic: Clock = monotonic_s,
    ) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._senders: dict[str, Send] = {"http": send, **(senders or {})}
        self._base_url = base_url
        self._gates = gates or Gates()
        self._digest = digest
        self._random = random.Random(seed)
        self._monotonic = monotonic

    def run_once(self) -> bool:
        """Claim and try one due message; True when there may be another."""
        claimed = self._database.write(
            lambda uow: uow.outbox.claim(
                owner=self._owner, now=self._clock(), lease_s=LEASE_S, limit=1
            )
        )  # fmt: skip
        for row in claimed:
            self._deliver(row)
        return bool(claimed)

    def _deliver(self, row: OutboxRow) -> None:
        ready = self._database.write(lambda uow: self._prepare(uow, row))
        if ready is None:
            return
        tries, answer = self._try(ready)

        def settle(uow: UnitOfWork) -> OutboxState | None:
            state, due_at = self._judge(row, answer, uow.outbox.tries(row.id))
            if not self._settle(uow, row, state, due_at, tries):
                return None
            if state == "gave_up" and row.moment == "opened":
                uow.outbox.enqueue([_once_more(row, self._clock())])
            if answer.status == ASKED_TO_WAIT and due_at is not None:
                # It is too much for the receiver: the others would only be refused as well, and
                # overtake this one.
                uow.outbox.postpone(row.channel, until=due_at)
            if answer.status == 410:
                uow.channels.disable(ready.channel.id, "the receiver said 410 Gone")
            return state

        if self._database.write(settle) == "gave_up":
            log.warning("gave up message %s to channel %s", row.id, ready.channel.name)

    def _try(self, ready: _Ready) -> tuple[list[DeliveryTry], Answered]:
        """One try, and after a 400 one more in the format's plainest form."""
        first, answer = self._try_once(ready, ready.payload)
        plain = ready.format.fallback(ready.payload) if answer.status == 400 else None
        if plain is None:
            return [first], answer
        second, answer = self._try_once(ready, plain)
        return [first, second], answer

    def _try_once(self, ready: _Ready, payload: bytes) -> tuple[DeliveryTry, Answered]:
        began, at = self._monotonic(), self._clock()
        answer = send(ready.format, ready.channel, ready.row.id, payload, self._senders, at=at)
        took = self._monotonic() - began
        return DeliveryTry(ready.row.id, at, answer.status, took, answer.error), answer

    # -- before a try --------------------------------------------------------------------------

    def _prepare(self, uow: UnitOfWork, row: OutboxRow) -> _Ready | None:
        """The message made ready and its bytes frozen; None when there is nothing to send now.

        What is to be sent, held back or folded is decided here, once, at the first claim.
        """
        uow.outbox.lock()
        held = uow.outbox.get(row.id)
        if held is None or held.state != "sending" or held.claimed_by != self._owner:
            return None  # another message has said it meanwhile
        channel = uow.channels.get(row.channel)
        if channel is None or not channel.enabled:
            self._settle(uow, row, "cancelled", None)
            return None
        made = load_format(channel.format)
        payload = row.payload
        if payload is None:
            message = self._message(uow, held, channel, made)
            if message is None:
                return None
            payload = made.render(message, channel.config)
            uow.outbox.freeze(row.id, payload)
        return _Ready(row, channel, made, payload)

    def _message(
        self, uow: UnitOfWork, row: OutboxRow, channel: Channel, made: Format
    ) -> Message | None:
        """What there is to say now; None: nothing, and the row is marked accordingly."""
        if row.moment == "digest":
            return self._digest_message(uow, row)
        alert, now = uow.alerts.get(row.alert), self._clock()
        if alert is None:
            self._settle(uow, row, "cancelled", None)
            return None
        decided = self._gates.decide(uow, row, alert, channel, lasting=made.lasting, now=now)
        if decided.act == "drop":
            self._settle(uow, row, "cancelled", None)
        elif decided.act == "fold":
            uow.outbox.fold([row.id], into=decided.into, at=now)
        elif decided.act == "hold":
            until = max(decided.until, now + SHORTEST_HOLD_S)
            uow.outbox.hold(row.id, owner=self._owner, until=until, why=decided.why)
        if decided.act != "send":
            return None
        uow.outbox.fold(decided.members, into=row.id, at=now)
        return message_for(uow, row, alert, uow.outbox.folded(row.id), self._base_url)

    def _digest_message(self, uow: UnitOfWork, row: OutboxRow) -> Message | None:
        """The morning's digest; what waited for it in the night is said in it."""
        text = self._digest(uow, row)
        if text is None:
            self._settle(uow, row, "cancelled", None)
            return None
        uow.outbox.fold_held(row.channel, why="digest", into=row.id, at=self._clock())
        return Message(row.id, row.moment, row.created_at, text, DIGEST_ALERT, {})

    # -- after a try ---------------------------------------------------------------------------

    def _judge(
        self, row: OutboxRow, answer: Answered, before: Sequence[DeliveryTry]
    ) -> tuple[OutboxState, float | None]:
        """``before``: earlier tries, as far as we lived to note what they came to."""
        status = answer.status
        if status is not None and 200 <= status < 300:
            return "sent", None
        hopeless = status is not None and status < 500 and status not in RETRIED_STATUS
        failed = 1 + sum(one.status != ASKED_TO_WAIT for one in before)
        waited_s = self._clock() - before[0].at if before else 0.0
        tired = waited_s >= LONGEST_WAIT_S if status == ASKED_TO_WAIT else failed >= MOST_TRIES
        if hopeless or answer.refused or tired:
            return "gave_up", None
        return "waiting", self._clock() + self._pause_s(failed, answer.retry_after)

    def _pause_s(self, tries: int, retry_after: str) -> float:
        asked = retry_after_s(retry_after, self._clock())
        pause = min(FIRST_PAUSE_S * PAUSE_FACTOR ** max(tries - 1, 0), LONGEST_PAUSE_S)
        if asked is not None:
            # Never before the receiver said, and not all at the same instant.
            return asked + self._random.uniform(0.0, JITTER) * min(asked + 1.0, FIRST_PAUSE_S)
        return pause * self._random.uniform(1.0 - JITTER, 1.0 + JITTER)

    def _settle(
        self,
        uow: UnitOfWork,
        row: OutboxRow,
        state: OutboxState,
        due_at: float | None,
        tries: Sequence[DeliveryTry] = (),
    ) -> bool:
        for earlier in tries[:-1]:
            uow.outbox.note_try(earlier)
        last = tries[-1] if tries else None
        return uow.outbox.settle(
            row.id, owner=self._owner, state=state, at=self._clock(), due_at=due_at, attempt=last
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a try came to, with nothing secret left in its words."""

    status: int | None
    error: str = ""
    retry_after: str = ""
    refused: bool = False
    said: str = ""


def send(
    made: Format,
    channel: Channel,
    message: str,
    payload: bytes,
    senders: Mapping[str, Send],
    *,
    at: float,
) -> Outcome:
    """Send one payload to one channel, once. Never raises.

    ``error`` is why it failed: where there was an answer, how that began.
    """
    try:
        request = made.request(message, payload, channel.config, at=at)
    except (KeyError, ValueError) as error:
        # A channel that lacks an address, or whose secret is no base64.
        why = f"the channel is not set up ({type(error).__name__})"
        return Outcome(None, why, refused=True)
    answer = _handed(request, senders.get(made.sender))
    secrets = secrets_of(made, channel)
    said = scrub(answer.said, secrets)[:SHOWN_CHARS]
    went = answer.status is not None and 200 <= answer.status < 300
    failed = scrub(answer.error, secrets)[:SHOWN_CHARS] or ("" if went else said)
    return Outcome(answer.status, failed, answer.retry_after, answer.refused, said)


def _handed(request: Request, sender: Send | None) -> Answered:
    if sender is None:
        return Outcome(None, "nothing here can send this", refused=True)
    return sender(request.url, request.body, request.headers, method=request.method)


def secrets_of(made: Format, channel: Channel) -> list[str]:
    """Everything in a channel's config that is never shown."""
    held = (channel.config.get(field.name) for field in made.fields if field.secret)
    return [str(value) for value in held if value]


def _once_more(row: OutboxRow, now: float) -> OutboxRow:
    """What was given up is told as a reminder, if it is still open then and nobody has seen it."""
    return OutboxRow(
        message_id(row.alert, row.channel, "reminder", f"after {row.id}"), row.run, row.alert,
        row.channel, "reminder", now, now + REMIND_AFTER_S, state="held", detector=row.detector,
        severity=row.severity, held="gave_up",
    )  # fmt: skip


def retry_after_s(text: str, now: float) -> float | None:
    """Seconds a receiver asks us to wait: a number or an HTTP date; None: it does not say."""
    text = text.strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    if seconds != seconds:
        return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)
