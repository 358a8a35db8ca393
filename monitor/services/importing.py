"""A foreign log becomes an ordinary run: the batches a client would have sent, as past data."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from monitor.domain.run import PAST_DATA
from monitor.importers.base import Imported, ImportedAttempt
from trainer_hooks.wire import (
    AttemptStart,
    Batch,
    Event,
    Frame,
    Receipt,
    Record,
    RunEnd,
    RunStart,
    Scalar,
    encode,
)

SOURCE = "import"
_NAMESPACE = uuid.UUID("8f4d1f0a-6f0e-5b7e-9a53-2f1c5b0e7d42")


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """What became of the values of an import."""

    batches: int
    stored: int
    duplicate: int
    refused: int


def import_run(
    imported: Imported, accept: Callable[[bytes], Receipt], *, run: str, name: str
) -> ImportCounts:
    """Hand a log over, batch by batch; the same log under the same run id is a no-op.

    Args:
        accept: takes the body of one batch, as ``Ingest.accept`` does.
        run: id of the run; ``name`` is what people see.

    Raises:
        what ``accept`` raises.
    """
    counts = ImportCounts(0, 0, 0, 0)
    for batch in batches(imported, run=run, name=name):
        receipt = accept(encode(batch))
        counts = ImportCounts(
            counts.batches + 1,
            counts.stored + receipt.stored,
            counts.duplicate + receipt.duplicate,
            counts.refused + receipt.refused_values,
        )
    return counts


def batches(imported: Imported, *, run: str, name: str) -> Iterator[Batch]:
    """The log as batches, in the order a client would have sent them."""
    last = len(imported.attempts) - 1
    for ordinal, attempt in enumerate(imported.attempts):
        own = attempt_id(run, ordinal)
        head: list[Record] = [
            _run_start(imported, name),
            AttemptStart(ordinal, attempt.first_step, _first_time(attempt)),
            *imported.specs,
        ]
        for seq, frame in enumerate(attempt.frames):
            records = [*(head if seq == 0 else []), *_events(attempt, frame)]
            if ordinal == last and seq == len(attempt.frames) - 1:
                end = RunEnd("finished", frame.times[-1], attempt.last_step)
                records = [*records, end]
            yield Batch(
                run, own, SOURCE, seq, frame.times[-1], frame.steps[-1], [frame], records
            )  # fmt: skip


def attempt_id(run: str, ordinal: int) -> str:
    """The same attempt of the same run has the same id on every import."""
    return uuid.uuid5(_NAMESPACE, f"{run}\x1f{ordinal}").hex


def _run_start(imported: Imported, name: str) -> RunStart:
    config: dict[str, Scalar] = {PAST_DATA: True, "imported_from": imported.format}
    start = RunStart(
        name,
        _first_time(imported.attempts[0]),
        imported.run_kind,
        tags=["imported"],
        config=config,
    )
    return replace(start, **imported.facts)  # type: ignore[arg-type]


def _events(attempt: ImportedAttempt, frame: Frame) -> list[Event]:
    first, last = frame.steps[0], frame.steps[-1]
    return [event for event in attempt.events if first <= event.step <= last]


def _first_time(attempt: ImportedAttempt) -> float:
    return attempt.frames[0].times[0]
