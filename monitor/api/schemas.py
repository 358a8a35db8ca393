"""Shapes of requests and answers that are not records of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from monitor.services.views import (
    AlertView,
    EventView,
    PhaseView,
    RunSummary,
    SamplingView,
    SeriesView,
)


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    hint: str
    errors: list[dict[str, Any]] | None = None


class Act(BaseModel):
    """A person's act on an alert."""

    model_config = ConfigDict(extra="forbid")

    by: Annotated[str, Field(max_length=200)] = ""
    note: Annotated[str, Field(max_length=4000)] = ""


class Resolve(Act):
    """``was_fine`` labels the episode: nothing was wrong."""

    was_fine: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The act is written down; detection takes it up within moments."""

    alert: str


@dataclass(frozen=True, slots=True)
class RunList:
    """Runs, newest first."""

    runs: list[RunSummary]


@dataclass(frozen=True, slots=True)
class SeriesList:
    """All series of a run."""

    series: list[SeriesView]


@dataclass(frozen=True, slots=True)
class EventList:
    """What happened, and the declared stretches."""

    events: list[EventView]
    phases: list[PhaseView]


@dataclass(frozen=True, slots=True)
class AlertList:
    """Alerts, newest first."""

    alerts: list[AlertView]


@dataclass(frozen=True, slots=True)
class SamplingList:
    """Samplings, oldest first."""

    samplings: list[SamplingView]


def _problem(what: str) -> dict[str, Any]:
    return {
        "description": what,
        "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
    }


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("The request cannot be understood"),
    401: _problem("A token is needed"),
    403: _problem("Host or origin not allowed"),
    422: _problem("A value is not as it must be"),
    503: _problem("The database is away; try again"),
}
MISSING: dict[int | str, dict[str, Any]] = {
    404: _problem("There is no such thing"),
    410: _problem("The run was deleted"),
}
