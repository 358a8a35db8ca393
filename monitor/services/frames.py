"""From log entries to step frames: what belongs to a step, once all of it is there.

A step is handed on when every source of the current attempt has said ``through_step >= step``, or
when 30 s of ticks have passed since its first value came. What comes later is in the store only, so
that the judgements are the same however the input was cut; but for evaluations. They are said after
their step, often long after it, and are handed on with the next step there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from monitor.detectors.base import StepEvent, StepFrame
from monitor.domain.answer_metrics import summary
from monitor.domain.log import ColumnFrame, LogEntry
from trainer_hooks.wire import Answer, Event, Heartbeat, Phase, Record, from_cell, to_cell

PATIENCE_TICKS = 2
"""Ticks come every 15 s while the server is up: two of them are 30 s, downtime not counted."""

LATE_EVENTS = 64

EVALUATIONS = ("loss/heldout", "eval/", "eval_error/")
"""How the keys of values begin that a loop says of a step it has finished."""


@dataclass(slots=True)
class _Row:
    ticks: int
    t: float = 0.0
    values: dict[str, float] = field(default_factory=dict)
    events: list[StepEvent] = field(default_factory=list)


class FrameAssembler:
    """Collects the rows of one attempt at a time and gives them out by rising step."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._known: dict[str, bool] = {}
        self.attempt = ""
        self.ordinal = -1
        self.first_step = 0
        self._seen: list[str] = []
        self._rows: dict[int, _Row] = {}
        self._through: dict[str, int] = {}
        self._emitted = -1
        self._ticks = 0
        self._late: list[StepEvent] = []
        self._evaluated: dict[str, float] = {}

    def ask_again(self) -> None:
        """Other series may be wanted from here on."""
        self._known.clear()

    def knows(self, attempt: str) -> bool:
        return attempt in self._seen

    def begin(self, attempt: str, ordinal: int, first_step: int = 0) -> None:
        """Go over to a new attempt; what the old one still holds back is dropped as ghosts."""
        self.attempt, self.ordinal, self.first_step = attempt, ordinal, first_step
        self._seen.append(attempt)
        self._rows, self._through, self._emitted, self._late = {}, {}, -1, []
        self._evaluated = {}

    def add(self, entry: LogEntry) -> list[StepFrame]:
        """Take in a batch of the current attempt; the frames it completed."""
        for frame in entry.frames:
            self._add_frame(frame)
        for record in entry.records:
            self._add_record(record)
        if not is_bystander(entry):  # who trains no step completes none
            through = entry.through_step if entry.through_step is not None else -1
            self._through[entry.source] = max(through, self._through.get(entry.source, -1))
        return self._emit(min(self._through.values(), default=-1))

    def tick(self) -> list[StepFrame]:
        """15 s have passed: hand on what has waited for 30 s."""
        self._ticks += 1
        old = [s for s, row in self._rows.items() if self._ticks - row.ticks >= PATIENCE_TICKS]
        return self._emit(max(old)) if old else []

    def flush(self, before: int | None = None) -> list[StepFrame]:
        """All that is left (below step ``before``): the attempt has ended."""
        steps = [step for step in self._rows if before is None or step < before]
        return self._emit(max(steps)) if steps else []

    def arrival(self, entry: LogEntry) -> StepFrame:
        """That something came, from how far, and which phases it told of: for those who listen.

        A phase is told here when its word arrives, though its step may not be complete yet. Answers
        are told here too, however old the weights are they came from. A bystander brings answers
        alone: that it is alive says nothing of the run.
        """
        if is_bystander(entry):
            return self.answers(entry)
        events = [StepEvent("arrival", "batch", entry.at, data={"step": _reached(entry)})]
        for record in entry.records:
            if isinstance(record, Phase):
                kind = "phase" if record.end_step is None else "phase_end"
                events.append(StepEvent(kind, record.name, entry.at))
            elif isinstance(record, Answer):
                events.append(_told(record))
        return self._heard(entry, events)

    def answers(self, entry: LogEntry) -> StepFrame:
        """The answers of a batch; of an older attempt only those by weights we go on from."""
        ours = entry.attempt == self.attempt
        told = [r for r in entry.records if isinstance(r, Answer)]
        kept = [r for r in told if ours or r.weights_step < self.first_step]
        return self._heard(entry, [_told(record) for record in kept])

    def passed(self, entry: LogEntry) -> StepFrame:
        """That server time passed."""
        return self._heard(entry, [StepEvent("tick", "tick", entry.at, data=dict(entry.note))])

    def _heard(self, entry: LogEntry, events: list[StepEvent]) -> StepFrame:
        step = max(self._emitted, 0)
        return StepFrame(self.attempt, self.ordinal, step, entry.at, {}, tuple(events))

    def _add_frame(self, frame: ColumnFrame) -> None:
        steps, times = frame.steps.tolist(), frame.times.tolist()
        for key, column in frame.columns.items():
            if not self._is_wanted(key):
                continue
            present = None if column.present is None else column.present.tolist()
            for index, value in enumerate(column.values.tolist()):
                if present is None or present[index]:
                    self._put(steps[index], times[index], key, value)

    def _is_wanted(self, key: str) -> bool:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._wanted(key)
        return known

    def _row(self, step: int) -> _Row:
        row = self._rows.get(step)
        if row is None:
            row = self._rows[step] = _Row(self._ticks)
        return row

    def _put(self, step: int, t: float, key: str, value: float) -> None:
        if step > self._emitted:
            row = self._row(step)
            row.t = max(row.t, t)
            row.values[key] = value
        elif key.startswith(EVALUATIONS):
            self._evaluated[key] = value

    def _add_record(self, record: Record) -> None:
        if isinstance(record, Event):
            event = StepEvent("event", record.name, record.at, record.text, dict(record.data))
            self._put_event(record.step, event)
        elif isinstance(record, Phase):
            kind = "phase" if record.end_step is None else "phase_end"
            data: dict[str, Any] = {"path": record.path, "phase_id": record.phase_id}
            at = record.begin_at if record.end_at is None else record.end_at
            step = record.begin_step if record.end_step is None else record.end_step
            self._put_event(step, StepEvent(kind, record.name, at, record.text, data))

    def _put_event(self, step: int, event: StepEvent) -> None:
        if step > self._emitted:
            row = self._row(step)
            row.events.append(event)
            row.t = row.t or event.at
        else:
            self._late.append(event)
            del self._late[:-LATE_EVENTS]

    def _emit(self, through: int) -> list[StepFrame]:
        if through <= self._emitted:
            return []
        ready = sorted(step for step in self._rows if step <= through)
        self._emitted = through
        return [self._frame(step, self._rows.pop(step)) for step in ready]

    def _frame(self, step: int, row: _Row) -> StepFrame:
        events, values = (*self._late, *row.events), self._evaluated | row.values
        self._late, self._evaluated = [], {}
        return StepFrame(self.attempt, self.ordinal, step, row.t, values, events)

    def snapshot(self) -> dict[str, Any]:
        """All memory as JSON values; non-finite numbers by their names."""
        rows = [
            {
                "step": step,
                "waited": self._ticks - row.ticks,
                "t": row.t,
                "values": {key: to_cell(value) for key, value in row.values.items()},
                "events": [_plain(event) for event in row.events],
            }
            for step, row in sorted(self._rows.items())
        ]
        return {
            "attempt": self.attempt,
            "ordinal": self.ordinal,
            "first_step": self.first_step,
            "seen": list(self._seen),
            "rows": rows,
            "through": dict(self._through),
            "emitted": self._emitted,
            "late": [_plain(event) for event in self._late],
            "evaluated": {key: to_cell(value) for key, value in self._evaluated.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what ``snapshot`` gave."""
        self.attempt, self.ordinal = state["attempt"], state["ordinal"]
        self.first_step = state.get("first_step", 0)
        self._seen, self._through = list(state["seen"]), dict(state["through"])
        self._emitted, self._ticks = state["emitted"], 0
        self._late = [StepEvent(**event) for event in state["late"]]
        told = state.get("evaluated", {})
        self._evaluated = {key: from_cell(cell) for key, cell in told.items()}
        self._rows = {
            row["step"]: _Row(
                -row["waited"],
                row["t"],
                {key: from_cell(cell) for key, cell in row["values"].items()},
                [StepEvent(**event) for event in row["events"]],
            )
            for row in state["rows"]
        }


def is_bystander(entry: LogEntry) -> bool:
    """Whether a batch came from somebody who watches the training from beside it."""
    return bool(entry.note.get("bystander"))


def _told(answer: Answer) -> StepEvent:
    return StepEvent("answer", answer.prompt_id, answer.at, data=summary(answer))


def _reached(entry: LogEntry) -> int | None:
    """The last step a batch knows of, by whatever it says."""
    steps = [int(frame.steps[-1]) for frame in entry.frames if len(frame.steps)]
    steps += [r.step for r in entry.records if isinstance(r, Heartbeat) and r.step is not None]
    if entry.through_step is not None:
        steps.append(entry.through_step)
    return max(steps, default=None)


def _plain(event: StepEvent) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "name": event.name,
        "at": event.at,
        "text": event.text,
        "data": {key: to_cell(v) if isinstance(v, float) else v for key, v in event.data.items()},
    }
