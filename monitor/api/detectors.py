"""Detectors and their parameters: what a change would have done, and the change itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from monitor.api.auth import Reading
from monitor.api.deps import TunerPart
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS
from monitor.domain.alert import Alert
from monitor.services.backtest import Judged
from monitor.services.tuning import Compared, Tunable

router = APIRouter(
    prefix="/api/v1/detectors", tags=["detectors"], dependencies=[Reading], responses=PROBLEMS
)

Words = Annotated[str, Field(max_length=512, pattern=r"^[^\x00-\x1f]*$")]
Params = Annotated[
    dict[Words, Words],
    Field(max_length=64, description="By parameter, as typed; others are as shipped."),
]


class Change(BaseModel):
    """Parameters other than those shipped."""

    model_config = ConfigDict(extra="forbid")

    params: Params


class Trial(Change):
    """Parameters, and the runs to try them on (none: the newest twenty)."""

    runs: Annotated[list[Words], Field(max_length=200)] = []


class Switch(Change):
    """Parameters to judge by from here on; none: as shipped again."""

    by: Words = ""


@dataclass(frozen=True, slots=True)
class DetectorList:
    """All detectors that have parameters."""

    detectors: list[Tunable]


@dataclass(frozen=True, slots=True)
class TriedAlert:
    """An alert of a replay. ``was_fine``: a person said so of an alert at these steps."""

    severity: str
    subject: str
    title: str
    onset_step: int
    opened_step: int
    resolved_step: int | None
    cause: str
    was_fine: bool


@dataclass(frozen=True, slots=True)
class TriedRun:
    """A run judged as now (``before``) and with the change (``after``). ``broken``: the detector
    failed with the change, and with which error; empty: it did not."""

    run: str
    name: str
    steps: int
    before: list[TriedAlert]
    after: list[TriedAlert]
    broken: str


@dataclass(frozen=True, slots=True)
class Tried:
    """``left``: runs there was no time for; ask again for these."""

    detector: str
    runs: list[TriedRun]
    left: list[str]
    seconds: float


@router.get("", response_model=DetectorList)
def list_detectors(tuner: TunerPart) -> Plain:
    """Detectors, what can be changed of them, and what is in force."""
    return Plain(DetectorList(tuner.detectors()))


@router.post("/{detector}/backtest", response_model=Tried, responses=MISSING)
def try_out(detector: str, body: Trial, tuner: TunerPart) -> Plain:
    """Judge stored runs as now and with other parameters. Nothing is changed and nobody told."""
    found = tuner.preview(detector, body.params, body.runs)
    runs = [_tried(detector, one) for one in found.runs]
    return Plain(Tried(detector, runs, list(found.left), found.seconds))


@router.put("/{detector}/params", response_model=Tunable, responses=MISSING)
def put_params(detector: str, body: Switch, tuner: TunerPart) -> Plain:
    """Judge by these from here on, runs under way too, and after a restart."""
    return Plain(tuner.switch_on(detector, body.params, body.by))


def _tried(detector: str, one: Compared) -> TriedRun:
    return TriedRun(
        run=one.run,
        name=one.name,
        steps=one.after.steps,
        before=[_alert(one.before, alert) for alert in one.before.alerts],
        after=[_alert(one.after, alert) for alert in one.after.alerts],
        broken=one.after.broken.get(detector, ""),
    )


def _alert(judged: Judged, alert: Alert) -> TriedAlert:
    causes = alert.evidence.get("causes") or ()
    lasted = alert.resolved_reason == "run_ended"
    return TriedAlert(
        severity=alert.severity,
        subject=alert.subject,
        title=alert.title,
        onset_step=alert.onset_step,
        opened_step=alert.opened_step,
        resolved_step=None if lasted else alert.resolved_step,
        cause=causes[0]["text"] if causes else "unexplained",
        was_fine=judged.was_fine(alert),
    )
