"""For whoever keeps the process alive. Open without a token, and says nothing but well or not."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from monitor.api.deps import DatabasePart, WorkersPart
from monitor.api.plain import Plain
from monitor.api.schemas import PROBLEMS
from monitor.errors import Unavailable

router = APIRouter(prefix="/health", tags=["health"])

FAILING_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Well:
    """``ok``."""

    status: str = "ok"


@router.get("/live", response_model=Well)
def live() -> Plain:
    """The process answers."""
    return Plain(Well())


@router.get("/ready", response_model=Well, responses={503: PROBLEMS[503]})
def ready(database: DatabasePart, workers: WorkersPart) -> Plain:
    """The database answers, and no worker fails again and again."""
    with database.read() as uow:
        uow.log.heads()
    failing = [one.name for one in workers.health() if one.failures >= FAILING_ROUNDS]
    if failing:
        raise Unavailable(f"Failing: {', '.join(failing)}.", hint="The server's log says why.")
    return Plain(Well())
