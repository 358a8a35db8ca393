"""An alert in words, and what people do with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from monitor.domain.alert import Alert
from monitor.domain.plan import HOUR_S, Toll
from monitor.domain.run import Run
from monitor.domain.words import duration_text
from monitor.errors import Conflict, NotFound
from monitor.formats.base import AlertText
from monitor.services.costs import toll_of
from monitor.storage.base import Database, UnitOfWork

HEADLINE_CHARS = 150
"""What a phone shows of a notification, and what the strictest chat allows in a header."""

REASONS = {
    "run_ended": "the run ended",
    "superseded": "the run went back to before it began",
    "resolved_by_person": "closed by hand",
    "was_fine": "closed by hand: this was fine",
}


def alert_text(uow: UnitOfWork, alert: Alert, *, moment: str, base_url: str = "") -> AlertText:
    """All an alert has to say, in the order somebody just woken needs it."""
    run = uow.runs.get(alert.run)
    so_far = toll_of(uow, alert)
    name = run.name if run is not None else alert.run
    zone = run.zone if run is not None else "UTC"
    link, runbook = _links(alert, base_url)
    return AlertText(
        headline=_headline(alert, name, zone, moment),
        lines=tuple(line for line in _lines(alert, run, so_far, moment, link, runbook) if line),
        link=link,
        runbook=runbook,
    )


def acknowledge(database: Database, alert: str, *, by: str, note: str, at: float) -> None:
    """Write down that a person has seen it. Detection reads it off the log, in its order.

    Raises:
        NotFound: there is no such alert.
        Conflict: it is resolved already.
    """
    _append(database, "acknowledge", alert, {"by": by, "note": note}, at)


def resolve(
    database: Database, alert: str, *, by: str, note: str, was_fine: bool, at: float
) -> None:
    """Close it by hand. ``was_fine``: nothing was wrong; a label for judging the detectors.

    Raises:
        NotFound: there is no such alert.
        Conflict: it is resolved already.
    """
    _append(database, "resolve", alert, {"by": by, "note": note, "was_fine": was_fine}, at)


def _append(database: Database, kind: Any, alert: str, note: dict[str, Any], at: float) -> None:
    def work(uow: UnitOfWork) -> None:
        held = uow.alerts.get(alert)
        if held is None:
            raise NotFound("There is no such alert.")
        if not held.open:
            raise Conflict("This alert is resolved already.")
        uow.log.append_note(held.run, kind, {"alert": alert, **note}, at=at)

    database.write(work)


def _headline(alert: Alert, name: str, zone: str, moment: str) -> str:
    """``run: what since step 41,203 (03:12) - warning``; only the run's name may be cut."""
    if moment == "resolved":
        why = REASONS.get(alert.resolved_reason or "", "the condition is gone")
        tail = f": {alert.title} is over - {why}"
    else:
        worse = " got worse," if moment == "reminder" else ""
        when = local_time(alert.onset_at, zone)
        tail = f": {alert.title}{worse} since step {alert.onset_step:,} ({when}) - {alert.severity}"
    if moment == "acknowledged":
        tail += f", acknowledged by {(alert.acknowledged_by or 'somebody')[:40]}"
    room = max(HEADLINE_CHARS - len(tail), 16)
    shown = name if len(name) <= room else f"{name[: room - 1]}…"
    return " ".join(f"{shown}{tail}".split())


def _lines(
    alert: Alert, run: Run | None, so_far: Toll, moment: str, link: str, runbook: str
) -> list[str]:
    evidence = alert.evidence
    lines = [_sentence(str(evidence.get("summary") or ""))]
    if moment == "resolved":
        lines = [f"It lasted from step {alert.onset_step:,} to {alert.resolved_step or 0:,}."]
        return [*lines, f"Show: {link}" if link else ""]
    causes = evidence.get("causes") or ()
    if causes:
        lines.append(f"Likely cause: {_sentence(causes[0]['text'])}")
    lines.append(_so_far(run, so_far))
    if evidence.get("first_action"):
        lines.append(f"First: {_sentence(evidence['first_action'])}")
    lines += [_named("What this means", runbook), _named("Show", link)]
    return lines


def _named(label: str, address: str) -> str:
    return f"{label}: {address}" if address else ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) or not text else f"{text}."


def _so_far(run: Run | None, so_far: Toll) -> str:
    """What it has cost since it began, and what going back would lose of the good work."""
    currency = str((run.facts.get("currency") if run else None) or "USD")
    spent = [duration_text(so_far.hours * HOUR_S)]
    if so_far.tokens:
        spent.append(f"{tokens_text(so_far.tokens)} tokens")
    if so_far.money is not None:
        spent.append(money_text(so_far.money, currency))
    first = f"So far {', '.join(spent)}."
    if so_far.good is None or so_far.lost_hours is None:
        return f"{first} There is no {'good ' if so_far.spoiled else ''}checkpoint before it."
    lost = duration_text(so_far.lost_hours * HOUR_S)
    good = "good checkpoint" if so_far.spoiled else "checkpoint"
    return f"{first} Last {good} before it: {so_far.good.step:,}; going back loses {lost}."


def tokens_text(tokens: float) -> str:
    """``950``, ``12 k``, ``3.4 M``, ``1.2 B``."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:.0f}"


def money_text(amount: float, currency: str) -> str:
    """``$4.60``; currencies without a common sign by their code."""
    sign = {"USD": "$", "EUR": "€", "GBP": "£"}.get(currency)
    return f"{sign}{amount:,.2f}" if sign else f"{amount:,.2f} {currency}"


def local_time(at: float, zone: str) -> str:
    """Hours and minutes in the run's zone; an unknown zone is UTC."""
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        return f"{datetime.fromtimestamp(at, UTC):%H:%M}"
    return f"{datetime.fromtimestamp(at, place):%H:%M}"


def _links(alert: Alert, base_url: str) -> tuple[str, str]:
    """Links only where people said how they reach the dashboard; a half link is none."""
    if not base_url.startswith(("http://", "https://")):
        return "", ""
    base = base_url.rstrip("/")
    return f"{base}/alerts/{alert.id}", f"{base}/docs/detectors/{alert.detector}"


def run_facts(run: Run | None, alert: Alert) -> Mapping[str, Any]:
    """What a message says of the run besides its name."""
    if run is None:
        return {"id": alert.run, "name": alert.run}
    return {"id": run.id, "name": run.name, "kind": run.kind, "last_step": run.last_step}
