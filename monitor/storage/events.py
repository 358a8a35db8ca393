"""Events and phases, laid out of the log so that they outlive it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.storage import tables
from monitor.storage.dialects import insert
from trainer_hooks.wire import Event, Phase

_EVENT = tables.event.c
_PHASE = tables.phase.c
_EVENT_FIELDS = [field.name for field in fields(Event) if field.name != "kind"]
_PHASE_FIELDS = [field.name for field in fields(Phase) if field.name != "kind"]


class SqlEvents:
    """``base.Events`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_event(self, run: str, attempt: str, event: Event, *, pos: int) -> None:
        number = sa.select(sa.func.coalesce(sa.func.max(_EVENT.number), 0) + 1)
        values: dict[str, Any] = {name: getattr(event, name) for name in _EVENT_FIELDS}
        values |= {
            "run": run,
            "attempt": attempt,
            "pos": pos,
            "number": self._connection.execute(number.where(_EVENT.run == run)).scalar_one(),
        }
        self._connection.execute(sa.insert(tables.event), values)

    def add_phase(self, run: str, attempt: str, phase: Phase, *, pos: int) -> None:
        values: dict[str, Any] = {name: getattr(phase, name) for name in _PHASE_FIELDS}
        values |= {"run": run, "attempt": attempt, "pos": pos}
        statement = insert(self._connection, tables.phase)
        new = statement.excluded
        # The messages may arrive in either order: an end once known stays.
        changes = {
            "end_step": sa.func.coalesce(new.end_step, _PHASE.end_step),
            "end_at": sa.func.coalesce(new.end_at, _PHASE.end_at),
            "path": sa.func.coalesce(new.path, _PHASE.path),
            "text": sa.case((new.text != "", new.text), else_=_PHASE.text),
        }
        done = statement.on_conflict_do_update(
            index_elements=["run", "attempt", "phase_id"], set_=changes
        )
        self._connection.execute(done, values)

    def events(self, run: str, *, limit: int = 10_000) -> list[tuple[str, Event]]:
        """The newest ``limit`` events with their attempts, by step."""
        query = sa.select(tables.event).where(_EVENT.run == run)
        rows = self._connection.execute(query.order_by(_EVENT.number.desc()).limit(limit)).all()
        rows = sorted(rows, key=lambda row: (row.step, row.number))
        return [(row.attempt, Event(**_pick(row, _EVENT_FIELDS))) for row in rows]

    def phases(self, run: str, *, limit: int = 10_000) -> list[tuple[str, Phase]]:
        """The newest ``limit`` phases with their attempts, by first step."""
        query = sa.select(tables.phase).where(_PHASE.run == run)
        newest = query.order_by(_PHASE.begin_step.desc(), _PHASE.begin_at.desc()).limit(limit)
        rows = self._connection.execute(newest).all()
        return [(row.attempt, to_phase(row)) for row in reversed(rows)]


def to_phase(row: Row[Any]) -> Phase:
    """A phase from its row."""
    return Phase(**_pick(row, _PHASE_FIELDS))


def _pick(row: Row[Any], names: list[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}
