"""Sampled answers: two samplings side by side, trends over all of them, and export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from monitor.api.auth import Reading
from monitor.api.deps import DatabasePart, ReadingPart, known_run
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS, SamplingList, WindowList
from monitor.services.answer_trends import as_csv, export_rows, trends
from monitor.services.answers import samplings, side_by_side
from monitor.services.views import AnswerPairs, AnswerTrends
from monitor.services.windows import windows

router = APIRouter(
    prefix="/api/v1/runs/{run}",
    tags=["answers"],
    dependencies=[Reading],
    responses=PROBLEMS | MISSING,
)
Name = Annotated[str | None, Query(max_length=512)]


@router.get("/samplings", response_model=SamplingList)
def list_samplings(run: str, database: DatabasePart) -> Plain:
    """When answers were sampled, oldest first."""
    with database.read() as uow:
        return Plain(SamplingList(samplings(uow, known_run(uow, run))))


@router.get("/samplings/windows", response_model=WindowList)
def sampling_windows(run: str, database: DatabasePart, reading: ReadingPart) -> Plain:
    """The latest sampling windows, and what each did to the training beside it."""
    with database.read() as uow:
        known_run(uow, run)
    return Plain(WindowList(windows(database, reading, run)))


@router.get("/answers", response_model=AnswerPairs)
def compare_answers(
    run: str,
    database: DatabasePart,
    left: Name = None,
    right: Name = None,
    prompt: Name = None,
    brief: bool = False,
) -> Plain:
    """The same prompts in two samplings, with a word diff and a verdict.

    By default the latest sampling and that of the day before (by the run's zone). ``prompt`` gives
    that pair alone, ``brief`` all pairs without texts and tokens.
    """
    with database.read() as uow:
        known = known_run(uow, run)
        found = side_by_side(uow, known, left, right, prompt=prompt, brief=brief)
    return Plain(found)


@router.get("/answers/trends", response_model=AnswerTrends)
def answer_trends(run: str, database: DatabasePart) -> Plain:
    """Numbers of all samplings, the days they lie on, and the alerts about them."""
    with database.read() as uow:
        found = trends(uow, known_run(uow, run))
    return Plain(found)


@router.get("/answers/export")
def export_answers(
    run: str,
    database: DatabasePart,
    format: Literal["json", "csv"] = "json",
    sampling: Name = None,
) -> Response:
    """All answers (or those of one sampling) as a file. No cell of the CSV begins as a formula."""
    with database.read() as uow:
        known_run(uow, run)
    if format == "json":
        with database.read() as uow:
            rows = list(export_rows(uow, known_run(uow, run), sampling))
        return Plain({"answers": rows}, headers=_attached("json"))

    def lines() -> Iterator[str]:
        with database.read() as uow:
            yield from as_csv(export_rows(uow, known_run(uow, run), sampling))

    return StreamingResponse(
        lines(), media_type="text/csv; charset=utf-8", headers=_attached("csv")
    )


def _attached(suffix: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="answers.{suffix}"'}
