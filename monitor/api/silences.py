"""Silences: when nothing is told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from monitor.api.auth import Reading
from monitor.api.deps import DatabasePart, WallClock
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS
from monitor.domain.silence import Silence, instant
from monitor.errors import UnknownFilter
from monitor.services import silencing

router = APIRouter(
    prefix="/api/v1/silences", tags=["silences"], dependencies=[Reading], responses=PROBLEMS
)

Words = Annotated[str, Field(max_length=512, pattern=r"^[^\x00-\x1f]*$")]
Local = Annotated[
    datetime | None, Field(description="ISO 8601; without an offset in the silence's zone.")
]


class NewSilence(BaseModel):
    """What is not to be told: alerts of this run, detector and tag (empty: any).

    Once, ``from`` and ``to``; or by the week, ``begin`` and ``end`` (HH:MM, over midnight where the
    end is not later) on ``days`` (0 Monday .. 6 Sunday; none: every day) in an IANA ``zone``.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    run: Words = ""
    detector: Words = ""
    tag: Words = ""
    zone: Annotated[str, Field(max_length=100)] = "UTC"
    starts: Local = Field(None, alias="from")
    ends: Local = Field(None, alias="to")
    begin: Annotated[str, Field(max_length=5)] = ""
    end: Annotated[str, Field(max_length=5)] = ""
    days: Annotated[list[Annotated[int, Field(ge=0, le=6)]], Field(max_length=7)] = []
    comment: Words = ""
    by: Words = ""


@dataclass(frozen=True, slots=True)
class SilenceView:
    """A silence; ``until``: when it ends, if it holds now."""

    id: str
    run: str
    detector: str
    tag: str
    zone: str
    starts_at: float | None
    ends_at: float | None
    begin: str
    end: str
    days: list[int]
    comment: str
    by: str
    created_at: float
    until: float | None


@dataclass(frozen=True, slots=True)
class SilenceList:
    """All silences, oldest first; those that are over too."""

    silences: list[SilenceView]


@router.get("", response_model=SilenceList)
def list_silences(database: DatabasePart, clock: WallClock) -> Plain:
    """All silences."""
    now = clock()
    with database.read() as uow:
        return Plain(SilenceList([_view(one, now) for one in uow.silences.all()]))


@router.post("", status_code=201, response_model=SilenceView)
def add_silence(body: NewSilence, database: DatabasePart, clock: WallClock) -> Plain:
    """Make one. What opens in it and is still open when it ends is told then, once."""
    now = clock()
    made = Silence(
        id="",
        run=body.run,
        detector=body.detector,
        tag=body.tag,
        zone=body.zone,
        starts_at=_instant(body.starts, body.zone),
        ends_at=_instant(body.ends, body.zone),
        begin=body.begin,
        end=body.end,
        days=tuple(sorted(set(body.days))),
        comment=body.comment,
        by=body.by,
    )
    return Plain(_view(silencing.add_silence(database, made, at=now), now), status_code=201)


@router.delete("/{silence}", status_code=204, responses=MISSING)
def remove_silence(silence: str, database: DatabasePart, clock: WallClock) -> Response:
    """End it now; what it held back is looked at again at once."""
    silencing.remove_silence(database, silence, at=clock())
    return Response(status_code=204)


def _instant(local: datetime | None, zone: str) -> float | None:
    if local is None:
        return None
    try:
        return instant(local, zone)
    except (OverflowError, ValueError, OSError):
        raise UnknownFilter("There is no such time.") from None


def _view(silence: Silence, now: float) -> SilenceView:
    return SilenceView(
        id=silence.id,
        run=silence.run,
        detector=silence.detector,
        tag=silence.tag,
        zone=silence.zone,
        starts_at=silence.starts_at,
        ends_at=silence.ends_at,
        begin=silence.begin,
        end=silence.end,
        days=list(silence.days),
        comment=silence.comment,
        by=silence.by,
        created_at=silence.created_at,
        until=silence.until(now),
    )
