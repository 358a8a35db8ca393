"""Shapes of requests and answers that are not records of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from monitor.domain.alert import AlertChange, FineSpan
from monitor.services.views import (
    AlertView,
    EventView,
    PhaseView,
    RunSummary,
    SamplingView,
    SeriesView,
    WindowView,
)
from trainer_hooks.wire import Cell


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    hint: str
    errors: list[dict[str, Any]] | None = None


def _shown_nul(text: str) -> str:
    """NUL is no text to PostgreSQL; it is shown by its picture, as everywhere."""
    return text.replace("\0", "\u2400")


class Act(BaseModel):
    """A person's act on an alert."""

    model_config = ConfigDict(extra="forbid")

    by: Annotated[str, Field(max_length=200), AfterValidator(_shown_nul)] = ""
    note: Annotated[str, Field(max_length=4000), AfterValidator(_shown_nul)] = ""


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
class AlertHistory:
    """Changes of a run's alerts, newest first."""

    run: str
    changes: list[AlertChange]


@dataclass(frozen=True, slots=True)
class FineList:
    """What people said was fine."""

    run: str
    spans: list[FineSpan]


@dataclass(frozen=True, slots=True)
class SamplingList:
    """Samplings, oldest first."""

    samplings: list[SamplingView]


@dataclass(frozen=True, slots=True)
class WindowList:
    """Sampling windows, oldest first."""

    windows: list[WindowView]


@dataclass(frozen=True, slots=True)
class PointsOfAttempt:
    """One series of one attempt; ``ghost``: what a later attempt has taken over.

    ``low`` and ``high`` are given where ``values`` are means of several points each, and ``mixed``
    says which means leave points out: step of the row, points not finite, points in all.
    """

    key: str
    attempt: str
    ghost: bool
    resolution: Literal["raw", "bucket", "block"]
    steps: list[int]
    times: list[Cell]
    values: list[Cell]
    low: list[Cell] | None
    high: list[Cell] | None
    non_finite: list[int]
    total_points: int
    mixed: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class PointsAnswer:
    """Points as of ``cursor``, from where the live stream goes on."""

    run: str
    cursor: str
    series: list[PointsOfAttempt]


def _problem(what: str) -> dict[str, Any]:
    return {
        "description": what,
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        },
    }


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("The request cannot be understood"),
    401: _problem("A token is needed"),
    403: _problem("Host or origin not allowed"),
    413: _problem("The body is too large"),
    415: _problem("This content type or coding is not understood"),
    422: _problem("A value is not as it must be"),
    503: _problem("The database is away; try again"),
}
MISSING: dict[int | str, dict[str, Any]] = {
    404: _problem("There is no such thing"),
    410: _problem("The run was deleted"),
}
