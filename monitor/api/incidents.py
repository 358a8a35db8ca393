"""Incidents: what one cause did to one run, on one card; and the morning's digest in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from monitor.api.auth import Reading
from monitor.api.deps import DatabasePart, DigestPart, OverviewPart, WallClock
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS
from monitor.domain.incident import Incident, incidents
from monitor.domain.silence import is_zone
from monitor.errors import NotFound, UnknownFilter
from monitor.services.overview import Overview
from monitor.services.views import AlertView
from monitor.storage.base import UnitOfWork

router = APIRouter(prefix="/api/v1", tags=["alerts"], dependencies=[Reading], responses=PROBLEMS)

MOST_ALERTS = 1000


@dataclass(frozen=True, slots=True)
class IncidentView:
    """Several alerts with one cause. ``lead``: the id of the alert most likely to be the cause."""

    id: str
    run: str
    run_name: str
    headline: str
    open: bool
    severity: str
    lead: str
    opened_at: float
    alerts: list[AlertView]


@dataclass(frozen=True, slots=True)
class IncidentList:
    """Incidents, newest first."""

    incidents: list[IncidentView]


@dataclass(frozen=True, slots=True)
class DigestView:
    """What the digest of a zone would say now."""

    zone: str
    headline: str
    lines: list[str]


@router.get("/incidents", response_model=IncidentList)
def list_incidents(
    database: DatabasePart,
    overview: OverviewPart,
    run: Annotated[str | None, Query(max_length=512)] = None,
    open: Annotated[bool, Query(description="Only those with an open alert.")] = False,  # noqa: A002
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Plain:
    """Incidents; an alert of its own cause is an incident of one."""
    with database.read() as uow:
        found = incidents(uow.alerts.find(open_only=False, run=run, limit=MOST_ALERTS))
        chosen = [one for one in found if one.open or not open][:limit]
        return Plain(IncidentList([_view(uow, overview, one) for one in chosen]))


@router.get("/incidents/{incident}", response_model=IncidentView, responses=MISSING)
def get_incident(incident: str, database: DatabasePart, overview: OverviewPart) -> Plain:
    """One incident with all its alerts."""
    with database.read() as uow:
        members = uow.alerts.of_incident(incident)
        if not members:
            raise NotFound("There is no such incident.")
        return Plain(_view(uow, overview, incidents(members)[0]))


@router.get("/digest", response_model=DigestView)
def preview_digest(
    digest: DigestPart,
    database: DatabasePart,
    clock: WallClock,
    zone: Annotated[str, Query(max_length=100)] = "UTC",
) -> Plain:
    """What the morning's digest would say of this zone's runs if it left now."""
    if not is_zone(zone):
        raise UnknownFilter(f"There is no time zone {zone!r}.", hint="Such as Europe/Paris.")
    with database.read() as uow:
        text = digest.compose(uow, zone, clock())
    if text is None:
        return Plain(DigestView(zone, "There is nothing to tell of.", []))
    return Plain(DigestView(zone, text.headline, list(text.lines)))


def _view(uow: UnitOfWork, overview: Overview, incident: Incident) -> IncidentView:
    alerts = [overview.alert(uow, alert) for alert in incident.alerts]
    return IncidentView(
        id=incident.id,
        run=incident.run,
        run_name=alerts[0].run_name,
        headline=incident.headline,
        open=incident.open,
        severity=incident.severity,
        lead=incident.lead.id,
        opened_at=min(alert.opened_at for alert in alerts),
        alerts=alerts,
    )
