"""Backtest: files or stored runs through the very engine that judges live runs.

Files need no server and no database. A stored run is read back from its points, so that a run whose
log is long gone can be judged anew. There are no ticks: time comes from the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.detectors import detector_table, load_detector
from monitor.detectors.base import Detector
from monitor.detectors.tuned import WrongParameter, parameters, tuned
from monitor.domain.alert import Alert, FineSpan
from monitor.domain.block import Ranked, merge
from monitor.domain.log import Column, ColumnFrame, Ints, LogEntry
from monitor.domain.run import Attempt, Run
from monitor.domain.series import matches
from monitor.errors import NotFound, UnknownFilter
from monitor.importers.base import Imported
from monitor.services.gathering import gather
from monitor.services.importing import batches
from monitor.services.judging import DetectionEngine, load_all
from monitor.services.parsing import parse
from monitor.services.sealing import READER
from monitor.storage.base import Database, UnitOfWork
from monitor.storage.codec import unpack_points
from trainer_hooks.wire import Answer, AttemptStart, Event, Phase, Record, RunEnd, RunStart, encode

ROWS_PER_ENTRY = 1000


@dataclass(frozen=True, slots=True)
class Judged:
    """What the detectors said of one run. ``steps`` counts the steps that had a value.

    ``fine``: what people said was fine of the run as it was watched. ``broken``: detectors that
    failed on it, and with which error.
    """

    run: str
    steps: int
    alerts: tuple[Alert, ...]
    fine: tuple[FineSpan, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)

    def was_fine(self, alert: Alert) -> bool:
        """Whether a person said so of an alert of this rule at these steps."""
        return any(span.holds(alert) for span in self.fine)

    def per_10k(self, alerts: int) -> float:
        """So many alerts as a rate per 10,000 steps."""
        return 10_000.0 * alerts / max(self.steps, 1)


def chosen_detectors(
    names: Sequence[str] = (), params: Mapping[str, str] | None = None
) -> dict[str, type[Detector]]:
    """The detectors of these names (none: all), with parameters changed for all that have them.

    Raises:
        UnknownFilter: no such detector, or none of them has such a parameter or value.
    """
    unknown = [name for name in names if name not in detector_table()]
    if unknown:
        known = ", ".join(detector_table())
        raise UnknownFilter(f"There is no detector {unknown[0]!r}.", hint=f"There are: {known}.")
    classes = {name: load_detector(name) for name in names} if names else load_all()
    unused = set(params or {})
    for name, cls in classes.items():
        own = parameters(cls)
        mine = {key: text for key, text in (params or {}).items() if key in own}
        unused -= set(mine)
        classes[name] = changed(cls, mine)
    if unused:
        raise UnknownFilter(f"None of these detectors has the parameter {min(unused)!r}.")
    return classes


def changed(cls: type[Detector], params: Mapping[str, str]) -> type[Detector]:
    """The detector with these parameters.

    Raises:
        UnknownFilter: it has no such parameter, or the text is no value of it.
    """
    try:
        return tuned(cls, params)
    except WrongParameter as error:
        raise UnknownFilter(str(error)) from None


def judge(
    run: str, entries: Iterable[LogEntry], detectors: Mapping[str, type[Detector]] | None = None
) -> Judged:
    """Feed a run's entries to the engine; its alerts as they ended up, by onset."""
    engine = DetectionEngine(run, detectors)
    alerts: dict[str, Alert] = {}
    steps: dict[str, set[int]] = {}
    for entry in entries:
        for frame in entry.frames:
            steps.setdefault(entry.attempt, set()).update(frame.steps.tolist())
        alerts.update((effect.alert.id, effect.alert) for effect in engine.feed(entry))
    ordered = sorted(alerts.values(), key=lambda alert: (alert.onset_step, alert.detector))
    return Judged(run, sum(map(len, steps.values())), tuple(ordered), broken=engine.broken)


def imported_entries(imported: Imported, run: str) -> Iterator[LogEntry]:
    """A foreign log as the entries its import would leave, through the same parsing."""
    for pos, batch in enumerate(batches(imported, run=run, name=run), start=1):
        parsed = parse(encode(batch))
        yield LogEntry(
            run, pos, "batch", batch.sent_at, parsed.attempt, parsed.source, parsed.seq,
            parsed.through_step, parsed.frames, parsed.records,
        )  # fmt: skip


def stored_entries(
    database: Database, run: str, needs: tuple[str, ...] | None = None, *, answers: bool = True
) -> Iterator[LogEntry]:
    """A stored run as entries again, attempt by attempt, from its points, events and answers.

    ``needs``: only series of these patterns are read (None: all). ``answers``: those too.

    Raises:
        NotFound: there is no such run.
    """
    with database.read() as work:
        found = work.runs.get(run)
        if found is None or found.deleted:
            raise NotFound(f"There is no run {run}.", hint="Nor is there a file of that name.")
        attempts = sorted(work.runs.attempts(run), key=lambda attempt: attempt.ordinal)
        parts = _points(work, run, needs)
        records = _told(work, run, answers)
    pos = 0
    for attempt in attempts:
        points = {key: part for (key, own), part in parts.items() if own == attempt.id}
        for entry in _attempt_entries(found, attempt, points, records.get(attempt.id, [])):
            pos += 1
            yield dataclasses.replace(entry, pos=pos)


# -- a stored run -------------------------------------------------------------------------------


def _points(
    work: UnitOfWork, run: str, needs: tuple[str, ...] | None
) -> dict[tuple[str, str], Ranked]:
    """All points of a run by (series key, attempt): sealed blocks and the unsealed tail."""
    wanted = [s for s in work.series.all(run) if needs is None or matches(s.key, needs)]
    keys = {series.number: series.key for series in wanted}
    parts: dict[tuple[str, str], list[Ranked]] = {}
    for number, key in keys.items():
        heads = work.blocks.summaries(run, [number], first_step=None, last_step=None)
        bodies = work.blocks.bodies([block.id for block in heads if block.id is not None])
        for block in sorted(bodies, key=lambda one: (one.tier, one.id or 0)):
            parts.setdefault((key, block.attempt), []).append(unpack_points(block.body))
    sealed = work.readers.positions(run).get(READER, 0)
    for place, tail in gather(_tail(work, run, sealed), set(keys.values())).items():
        parts.setdefault(place, []).extend(tail)
    return {place: merge(pieces) for place, pieces in parts.items()}


def _tail(work: UnitOfWork, run: str, pos: int) -> Iterator[LogEntry]:
    while entries := work.log.read(run, after=pos, limit=500):
        yield from entries
        pos = entries[-1].pos


def _told(work: UnitOfWork, run: str, answers: bool) -> dict[str, list[Record]]:
    """Records by attempt; answers come before the end of the phase they were sampled in."""
    told: dict[str, list[Record]] = {}
    for sampling in work.answers.samplings(run) if answers else ():
        held = work.answers.of_sampling(run, sampling["id"])
        told.setdefault(sampling["attempt"], []).extend(held)
    for attempt, event in work.events.events(run):
        told.setdefault(attempt, []).append(event)
    for attempt, phase in work.events.phases(run):
        begin = dataclasses.replace(phase, end_step=None, end_at=None)
        told.setdefault(attempt, []).append(begin)
        if phase.end_step is not None:
            told[attempt].append(phase)
    return told


def _attempt_entries(
    run: Run, attempt: Attempt, points: Mapping[str, Ranked], told: list[Record]
) -> Iterator[LogEntry]:
    steps = np.unique(
        np.concatenate([part.steps for part in points.values()] or [np.empty(0, np.int64)])
    )
    chunks = _chunks(steps, {r.weights_step for r in told if isinstance(r, Answer)})
    for index, chunk in enumerate(chunks):
        last = index == len(chunks) - 1
        first_step = 0 if index == 0 else int(chunks[index - 1][-1]) + 1
        records = [
            r for r in told if first_step <= _at_step(r) and (last or _at_step(r) <= chunk[-1])
        ]
        frame = _frame(points, chunk)
        if index == 0:
            start = AttemptStart(attempt.ordinal, attempt.first_step, attempt.started_at)
            records = [_facts(run), start, *records]
        if last and attempt.status is not None:
            records.append(RunEnd("finished", float(frame.times[-1])))
        yield LogEntry(
            run.id, 0, "batch", float(frame.times[-1]), attempt.id, "backtest", index,
            int(chunk[-1]), (frame,), tuple(records),
        )  # fmt: skip


def _chunks(steps: Ints, sampled: Collection[int]) -> list[Ints]:
    """Pieces of a bounded size, cut after each sampling: its answers are heard at their step."""
    cuts = set(range(ROWS_PER_ENTRY, len(steps), ROWS_PER_ENTRY))
    cuts |= set(np.searchsorted(steps, sorted(sampled), side="right").tolist())
    return [piece for piece in np.split(steps, sorted(cuts)) if len(piece)]


def _frame(points: Mapping[str, Ranked], steps: Ints) -> ColumnFrame:
    times = np.zeros(len(steps), np.float64)
    columns: dict[str, Column] = {}
    for key, part in points.items():
        inside = (part.steps >= steps[0]) & (part.steps <= steps[-1])
        rows = np.searchsorted(steps, part.steps[inside])
        if not len(rows):
            continue
        values, present = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
        values[rows], present[rows] = part.values[inside], True
        times[rows] = np.maximum(times[rows], part.times[inside])
        columns[key] = Column(values, present)
    return ColumnFrame(steps, times, columns)


def _facts(run: Run) -> RunStart:
    known = {field.name for field in dataclasses.fields(RunStart)} - {"asleep", "kind"}
    facts = {name: value for name, value in run.facts.items() if name in known}
    return RunStart(**{"name": run.name, "at": run.created_at, **facts})


def _at_step(record: Record) -> int:
    if isinstance(record, Answer):
        return record.weights_step
    if isinstance(record, Event):
        return record.step
    if isinstance(record, Phase):
        return record.begin_step if record.end_step is None else record.end_step
    return 0
