"""Alerts that go on, told again and again to receivers that forget what is not repeated.

That is between us and such a receiver (Alertmanager): no messages of their own, no outbox.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict

from monitor.clock import Clock
from monitor.domain.alert import Alert
from monitor.formats import load_format
from monitor.formats.base import Format, Message
from monitor.services.alerting import alert_text, run_facts
from monitor.services.delivery import Send, send
from monitor.storage.base import Channel, Database, UnitOfWork

MOST_ALERTS = 1000

log = logging.getLogger(__name__)


class KeepAlive:
    """Renews what is open, each channel at the pace its format sets. Needs no memory: who is
    restarted renews at once, and two processes renewing do no harm."""

    def __init__(
        self, database: Database, clock: Clock, senders: Mapping[str, Send], *, base_url: str = ""
    ) -> None:
        self._database = database
        self._clock = clock
        self._senders = senders
        self._base_url = base_url
        self._due: dict[str, float] = {}

    def run_once(self) -> bool:
        """Renew where it is time; never asks to be called again at once."""
        with self._database.read() as uow:
            due = [(channel, made) for channel, made in _renewed(uow) if self._is_due(channel)]
            told = [(channel, made, self._told(uow, channel)) for channel, made in due]
        for channel, made, messages in told:
            self._due[channel.id] = self._clock() + made.renew_every_s
            if messages:
                self._send(channel, made, messages)
        return False

    def _is_due(self, channel: Channel) -> bool:
        return self._clock() >= self._due.get(channel.id, 0.0)

    def _told(self, uow: UnitOfWork, channel: Channel) -> list[Message]:
        """The open alerts whose opening this channel has taken."""
        found = uow.alerts.find(open_only=True, run=None, limit=MOST_ALERTS)
        return [self._message(uow, alert) for alert in found if _was_told(uow, channel, alert)]

    def _message(self, uow: UnitOfWork, alert: Alert) -> Message:
        return Message(
            id=f"msg_renewed_{alert.id}",
            moment="opened",
            at=alert.opened_at,
            text=alert_text(uow, alert, moment="opened", base_url=self._base_url),
            alert=asdict(alert),
            run=run_facts(uow.runs.get(alert.run), alert),
        )

    def _send(self, channel: Channel, made: Format, messages: list[Message]) -> None:
        payload = made.renew(messages, channel.config)
        at = self._clock()
        got = send(made, channel, f"msg_renewed_{int(at)}", payload, self._senders, at=at)
        if got.status is None or not 200 <= got.status < 300:
            status = got.status or "no answer"
            log.warning("channel %s was not renewed: %s %s", channel.name, status, got.error)


def _renewed(uow: UnitOfWork) -> list[tuple[Channel, Format]]:
    pairs = [(one, load_format(one.format)) for one in uow.channels.all() if one.enabled]
    return [(channel, made) for channel, made in pairs if made.renew_every_s > 0]


def _was_told(uow: UnitOfWork, channel: Channel, alert: Alert) -> bool:
    return any(
        row.channel == channel.id and row.moment == "opened" and row.state == "sent"
        for row, _ in uow.outbox.of_alert(alert.id)
    )
