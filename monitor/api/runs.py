"""Runs: the list, one run, and forgetting one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from monitor.api.auth import Reading
from monitor.api.deps import DatabasePart, OverviewPart, WallClock, known_run
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS, EventList, RunList, SeriesList
from monitor.domain.run import RunState
from monitor.services.views import EventView, PhaseView, RunDetail

router = APIRouter(prefix="/api/v1/runs", tags=["runs"], dependencies=[Reading], responses=PROBLEMS)


@router.get("", response_model=RunList)
def list_runs(
    database: DatabasePart,
    overview: OverviewPart,
    state: Annotated[list[RunState] | None, Query()] = None,
    q: Annotated[str, Query(max_length=512, description="Part of name, id or tag.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 300,
) -> Plain:
    """Runs, newest first."""
    with database.read() as uow:
        return Plain(RunList(overview.runs(uow, states=state, text=q, limit=limit)))


@router.get("/{run}", response_model=RunDetail, responses=MISSING)
def get_run(run: str, database: DatabasePart, overview: OverviewPart) -> Plain:
    """One run with its facts, attempts and accounts."""
    with database.read() as uow:
        return Plain(overview.detail(uow, known_run(uow, run)))


@router.delete("/{run}", status_code=204, responses=MISSING)
def delete_run(
    run: str, database: DatabasePart, overview: OverviewPart, clock: WallClock
) -> Response:
    """Forget a run for ever; its trainer is told to stop sending (410)."""
    now = clock()
    with database.read() as uow:
        known_run(uow, run)
    database.write(lambda uow: uow.runs.delete(run, at=now))
    overview.latest.forget(run)
    return Response(status_code=204)


@router.get("/{run}/series", response_model=SeriesList, responses=MISSING)
def list_series(run: str, database: DatabasePart, overview: OverviewPart) -> Plain:
    """All series with their newest values."""
    with database.read() as uow:
        known_run(uow, run)
        return Plain(SeriesList(overview.series(uow, run)))


@router.get("/{run}/events", response_model=EventList, responses=MISSING)
def list_events(run: str, database: DatabasePart) -> Plain:
    """Events and phases, oldest first."""
    with database.read() as uow:
        known_run(uow, run)
        events = [
            EventView(attempt, e.name, e.step, e.at, e.text, e.data)
            for attempt, e in uow.events.events(run)
        ]
        phases = [
            PhaseView(
                attempt=attempt,
                phase_id=p.phase_id,
                name=p.name,
                begin_step=p.begin_step,
                begin_at=p.begin_at,
                end_step=p.end_step,
                end_at=p.end_at,
                path=p.path,
                text=p.text,
            )
            for attempt, p in uow.events.phases(run)
        ]
    return Plain(EventList(events, phases))
