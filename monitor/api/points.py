"""Points of series, thinned to what a chart can draw."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query

from monitor.api.auth import Reading
from monitor.api.deps import ReadingPart
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS, PointsAnswer, PointsOfAttempt
from monitor.domain.log import Floats
from monitor.errors import BadRequest
from monitor.services.cursors import encode_cursor
from monitor.services.reading import Curve
from trainer_hooks.wire import MAX_STEP, Cell, NonFinite, to_cell

router = APIRouter(
    prefix="/api/v1/runs/{run}",
    tags=["points"],
    dependencies=[Reading],
    responses=PROBLEMS | MISSING,
)

KEYS_A_REQUEST = 100
Step = Annotated[int | None, Query(ge=0, le=MAX_STEP)]


@router.get("/points", response_model=PointsAnswer)
def get_points(
    run: str,
    reading: ReadingPart,
    key: Annotated[list[str], Query(description="Series keys.")],
    from_step: Step = None,
    to_step: Step = None,
    max_points: Annotated[int, Query(ge=10, le=10_000)] = 1000,
) -> Plain:
    """Points of some series. Minimum, maximum and non-finite marks survive every thinning."""
    if len(key) > KEYS_A_REQUEST:
        raise BadRequest(f"At most {KEYS_A_REQUEST} series can be asked for at once.")
    found = reading.points(run, key, from_step=from_step, to_step=to_step, max_points=max_points)
    cursor = encode_cursor({run: (found.cursor, 0)})
    return Plain(PointsAnswer(run, cursor, [_shown(curve) for curve in found.series]))


def _shown(curve: Curve) -> PointsOfAttempt:
    absent: NonFinite | None = None if curve.resolution != "raw" else "nan"
    return PointsOfAttempt(
        key=curve.key,
        attempt=curve.attempt,
        ghost=curve.ghost,
        resolution=curve.resolution,
        steps=curve.steps.tolist(),
        times=_cells(curve.times, "nan"),
        values=_cells(curve.values, absent),
        low=None if curve.low is None else _cells(curve.low, None),
        high=None if curve.high is None else _cells(curve.high, None),
        non_finite=curve.non_finite.tolist(),
        total_points=curve.total_points,
        mixed=list(curve.mixed),
    )


def _cells(values: Floats, nan: NonFinite | None) -> list[Cell]:
    """Numbers as they travel. NaN is ``nan``: a fact in points, no value in means of points."""
    cells: list[Cell] = values.tolist()
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        value = float(values[row])
        cells[row] = nan if math.isnan(value) else to_cell(value)
    return cells
