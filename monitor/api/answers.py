"""Sampled answers, and two samplings side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from monitor.api.auth import Reading
from monitor.api.deps import DatabasePart, known_run
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS, SamplingList
from monitor.services.answers import samplings, side_by_side
from monitor.services.views import AnswerPairs

router = APIRouter(
    prefix="/api/v1/runs/{run}",
    tags=["answers"],
    dependencies=[Reading],
    responses=PROBLEMS | MISSING,
)
Sampling = Annotated[str | None, Query(max_length=512)]


@router.get("/samplings", response_model=SamplingList)
def list_samplings(run: str, database: DatabasePart) -> Plain:
    """When answers were sampled, oldest first."""
    with database.read() as uow:
        return Plain(SamplingList(samplings(uow, known_run(uow, run))))


@router.get("/answers", response_model=AnswerPairs)
def compare_answers(
    run: str, database: DatabasePart, left: Sampling = None, right: Sampling = None
) -> Plain:
    """The same prompts in two samplings (the latest two), with a word diff and a verdict."""
    with database.read() as uow:
        known = known_run(uow, run)
        found = side_by_side(uow, known, left, right)
    return Plain(found)
