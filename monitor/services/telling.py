"""What a message says: one alert with its incident, several spells of it, or one outage of many
runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from monitor.domain.alert import Alert
from monitor.domain.telling import MOST_LISTED, rule_of
from monitor.formats.base import AlertText, Message
from monitor.services.alerting import alert_text, run_facts
from monitor.storage.base import OutboxRow, UnitOfWork

LAST_LINES = ("First:", "What this means:", "Show:")
"""What a message adds stands before these."""


def message_for(
    uow: UnitOfWork, row: OutboxRow, alert: Alert, members: Sequence[OutboxRow], base_url: str
) -> Message:
    """A message with all that is folded into it."""
    told = _as_told(alert, row.moment)
    text = alert_text(uow, told, moment=row.moment, base_url=base_url)
    elsewhere = [m for m in members if m.run != row.run and m.moment == row.moment]
    text = _extended(text, _incident_lines(uow, told, row), _again_lines(uow, row, alert, members))
    others = tuple(one for member in elsewhere if (one := _other(uow, member)) is not None)
    if others:
        text = _grouped(uow, row, told, text, others, base_url)
    return Message(
        id=row.id,
        moment=row.moment,
        at=row.created_at,
        text=text,
        alert=asdict(told),
        run=run_facts(uow.runs.get(row.run), alert),
        others=tuple(
            {"alert": asdict(one), "run": run_facts(uow.runs.get(one.run), one)} for one in others
        ),
    )


def _as_told(alert: Alert, moment: str) -> Alert:
    return alert if moment == "resolved" else replace(alert, state="firing")


def _other(uow: UnitOfWork, row: OutboxRow) -> Alert | None:
    alert = uow.alerts.get(row.alert)
    return None if alert is None else _as_told(alert, row.moment)


def _incident_lines(uow: UnitOfWork, alert: Alert, row: OutboxRow) -> list[str]:
    """The other alerts of the incident that are open."""
    found = uow.alerts.of_incident(alert.incident or alert.id)
    others = [one for one in found if one.open and one.id != alert.id]
    if not others:
        return []
    named = [f"{one.title} since step {one.onset_step:,}" for one in others[:MOST_LISTED]]
    if row.moment == "resolved":
        return [f"Still open: {'; '.join(named)}."]
    return [f"One incident, {len(others) + 1} alerts; also {'; '.join(named)}."]


def _again_lines(
    uow: UnitOfWork, row: OutboxRow, alert: Alert, members: Sequence[OutboxRow]
) -> list[str]:
    """How often it came and went while nobody was told."""
    if not row.detector:
        return []
    before = [
        told.created_at
        for told in uow.outbox.of_rule(row.channel, row.detector, run=row.run)
        if told.id != row.id and told.state == "sent" and told.moment != "resolved"
    ]
    since = alert.opened_at if row.moment == "resolved" else max(before, default=alert.opened_at)
    said = {alert.id} | {member.alert for member in members if member.run == row.run}
    found = uow.alerts.of_detector(row.run, alert.detector, since=since)
    spells = {one.id for one in found if one.opened_at > since and rule_of(one) == row.detector}
    count = len(spells - said)
    if count <= 0:
        return []
    times = "once" if count == 1 else f"{count} times"
    if row.moment == "resolved":
        return [f"It came back {times} meanwhile."]
    return [f"This rule fired {times} more in this run since the last message."]


def _grouped(
    uow: UnitOfWork, row: OutboxRow, alert: Alert, text: AlertText, others: Sequence[Alert],
    base_url: str,
) -> AlertText:  # fmt: skip
    """One message of many runs: their number in the headline, each in a line."""
    runs = len({alert.run, *(one.run for one in others)})
    end = " is over" if row.moment == "resolved" else f" - {alert.severity}"
    listed = [
        alert_text(uow, one, moment=row.moment, base_url=base_url).headline
        for one in (alert, *others[: MOST_LISTED - 1])
    ]
    more = 1 + len(others) - len(listed)
    tail = [f"... and {more} more."] if more else []
    rest = [line for line in text.lines if line.startswith("What this means:")]
    return replace(
        text,
        headline=f"{runs} runs: {alert.title}{end}",
        lines=(*listed, *tail, *rest),
        link=text.link.rpartition("/")[0],
    )


def _extended(text: AlertText, *extra: Sequence[str]) -> AlertText:
    added = [line for lines in extra for line in lines]
    place = next(
        (i for i, line in enumerate(text.lines) if line.startswith(LAST_LINES)), len(text.lines)
    )
    return replace(text, lines=(*text.lines[:place], *added, *text.lines[place:]))
