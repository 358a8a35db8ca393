"""Alerts: the list, one with its history, and what people do about them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from monitor.api.auth import Reading
from monitor.api.deps import DatabasePart, OverviewPart, WallClock
from monitor.api.plain import Plain
from monitor.api.schemas import (
    MISSING,
    PROBLEMS,
    Accepted,
    Act,
    AlertHistory,
    AlertList,
    FineList,
    Resolve,
)
from monitor.domain.alert import fine_spans
from monitor.errors import NotFound
from monitor.services import alerting
from monitor.services.views import AlertDetail

router = APIRouter(
    prefix="/api/v1/alerts", tags=["alerts"], dependencies=[Reading], responses=PROBLEMS
)


@router.get("", response_model=AlertList)
def list_alerts(
    database: DatabasePart,
    overview: OverviewPart,
    run: Annotated[str | None, Query(max_length=512)] = None,
    open: Annotated[bool, Query(description="Only those that are not resolved.")] = False,  # noqa: A002
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Plain:
    """Alerts, newest first."""
    with database.read() as uow:
        found = uow.alerts.find(open_only=open, run=run, limit=limit)
        return Plain(AlertList([overview.alert(uow, alert) for alert in found]))


@router.get("/history", response_model=AlertHistory)
def alert_history(
    database: DatabasePart,
    run: Annotated[str, Query(max_length=512)],
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
) -> Plain:
    """Every change of every alert of a run, newest first."""
    with database.read() as uow:
        return Plain(AlertHistory(run, uow.alerts.history(run, limit=limit)))


@router.get("/fine", response_model=FineList)
def list_fine(database: DatabasePart, run: Annotated[str, Query(max_length=512)]) -> Plain:
    """Spans of a run that people called fine: labels for judging the detectors."""
    with database.read() as uow:
        return Plain(FineList(run, fine_spans(uow.alerts.labelled(run))))


@router.get("/{alert}", response_model=AlertDetail, responses=MISSING)
def get_alert(alert: str, database: DatabasePart, overview: OverviewPart) -> Plain:
    """One alert with its history and its messages."""
    with database.read() as uow:
        found = uow.alerts.get(alert)
        if found is None:
            raise NotFound("There is no such alert.")
        return Plain(overview.alert_detail(uow, found))


@router.post("/{alert}/acknowledge", status_code=202, response_model=Accepted, responses=MISSING)
def acknowledge(alert: str, act: Act, database: DatabasePart, clock: WallClock) -> Plain:
    """Somebody has seen it. No reminders are sent from here on."""
    alerting.acknowledge(database, alert, by=act.by, note=act.note, at=clock())
    return Plain(Accepted(alert), status_code=202)


@router.post("/{alert}/resolve", status_code=202, response_model=Accepted, responses=MISSING)
def resolve(alert: str, act: Resolve, database: DatabasePart, clock: WallClock) -> Plain:
    """Close it by hand; ``was_fine`` says that nothing was wrong."""
    alerting.resolve(database, alert, by=act.by, note=act.note, was_fine=act.was_fine, at=clock())
    return Plain(Accepted(alert), status_code=202)
