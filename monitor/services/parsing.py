"""From the bytes of a body to a batch whose every value is good.

The fast path lets pydantic validate the document at once, straight from the bytes. Where it does
not like something, ``refusing`` goes through the document value by value and says which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from monitor.domain.log import ColumnFrame, Floats, Matrix
from monitor.services import refusing, screening
from monitor.services.screening import Parsed, Refusals
from trainer_hooks.wire import MAX_NAME_BYTES, MAX_STEP, WIRE_VERSION, Record

_MOST_KEPT = 2_000
Step = Annotated[int, Field(ge=0, le=MAX_STEP)]


@dataclass(frozen=True, slots=True)
class PlainFrame:
    """``wire.Frame`` with plain numbers only: pydantic reads these columns at full speed."""

    steps: list[Step]
    times: list[float]
    columns: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """``wire.Batch`` with plain frames."""

    run: str
    attempt: str
    source: str
    seq: Step
    sent_at: float
    through_step: Step | None = None
    frames: list[PlainFrame] = field(default_factory=list)
    records: list[Annotated[Record, Field(discriminator="kind")]] = field(default_factory=list)
    v: int = WIRE_VERSION
    bystander: bool = False


_STRICT = ConfigDict(strict=True)
PlainFrame.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]
PlainBatch.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]
_BATCH = TypeAdapter(PlainBatch)


def parse(body: bytes) -> Parsed:
    """The batch in a body of JSON.

    Raises:
        MalformedBody: it is not JSON.
        Unprocessable: it is no batch, or nobody can tell whose.
    """
    if b"\\u0000" not in body:
        try:
            plain = _BATCH.validate_json(body, strict=True)
        except ValidationError:
            pass
        else:
            parsed = _from_plain(plain)
            if parsed is not None:
                return parsed
    return refusing.parse(body)


def _from_plain(plain: PlainBatch) -> Parsed | None:
    """The batch, or None where a value has to be refused."""
    if not screening.good_names(plain.run, plain.attempt, plain.source):
        return None
    if not math.isfinite(plain.sent_at):
        return None
    frames: list[ColumnFrame] = []
    values = 0
    for frame in plain.frames:
        if not (frame.steps and frame.columns):
            if _ragged(frame):
                return None
            continue
        converted = _to_columns(frame)
        if converted is None:
            return None
        frames.append(converted)
        values += count_values(converted)
    refusals = Refusals()
    records = screening.screen(plain.records, refusals)
    return Parsed(
        run=plain.run,
        attempt=plain.attempt,
        source=plain.source,
        seq=plain.seq,
        sent_at=plain.sent_at,
        through_step=plain.through_step,
        frames=tuple(frames),
        records=records,
        values=values,
        refusals=refusals,
        bystander=plain.bystander,
    )


def _ragged(frame: PlainFrame) -> bool:
    rows = len(frame.steps)
    if len(frame.times) != rows:
        return True
    return any(len(cells) != rows for cells in frame.columns.values())


def _to_columns(frame: PlainFrame) -> ColumnFrame | None:
    keys = tuple(frame.columns)
    if _ragged(frame) or not _good_names(keys):
        return None
    times = np.array(frame.times, np.float64)
    if not screening.good_times(times).all():
        return None
    cells = list(frame.columns.values())
    present = None
    if any(None in column for column in cells):
        present = np.array([[cell is not None for cell in column] for column in cells], np.bool_)
    values: Floats = np.array(cells, np.float64)  # None becomes NaN, under the mask
    steps = np.array(frame.steps, np.int64)
    return ColumnFrame(steps, screening.to_whole_ms(times), Matrix(keys, values, present))


def _good_names(names: tuple[str, ...]) -> bool:
    return all(map(_good_name, names)) if len(names) > _MOST_KEPT else _usual_names(names)


@lru_cache(maxsize=128)
def _usual_names(names: tuple[str, ...]) -> bool:
    """Batch after batch of a run has the same ones."""
    return all(map(_good_name, names))


def _good_name(name: str) -> bool:
    # Most names are short: four bytes a character is the worst case.
    return 0 < len(name) <= MAX_NAME_BYTES // 4 or screening.good_names(name)


def count_values(frame: ColumnFrame) -> int:
    """Non-null cells of a frame."""
    columns = frame.columns
    if isinstance(columns, Matrix):
        if columns.present is not None:
            return int(columns.present.sum())
        return int(columns.values_KS.size)
    return sum(
        len(frame.steps) if column.present is None else int(column.present.sum())
        for column in columns.values()
    )
