"""Runs and their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.domain.run import LIVE_STATES, Attempt, Run, RunState
from monitor.errors import Gone
from monitor.storage import tables
from monitor.storage.dialects import insert
from trainer_hooks.wire import RunStart, to_plain

_RUN = tables.run.c
_ATTEMPT = tables.attempt.c
_OWNED_BY_RUN = (
    "attempt log_head batch source series reader snapshot event phase answer outbox "
    "alert_change alert"
).split()
# Asked with every batch: built once.
_GET = sa.select(tables.run).where(_RUN.id == sa.bindparam("of"))
_TOUCH = (
    sa.update(tables.run)
    .where(_RUN.id == sa.bindparam("of"))
    .values(
        last_seen_at=sa.bindparam("at"),
        last_step=sa.func.coalesce(sa.bindparam("step", type_=sa.BigInteger), _RUN.last_step),
        clock_skew_s=sa.bindparam("skew"),
    )
)


class SqlRuns:
    """``base.Runs`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, run: str) -> Run | None:
        row = self._connection.execute(_GET, {"of": run}).first()
        return None if row is None else _to_run(row)

    def find(
        self, *, states: Sequence[RunState] | None, text: str, limit: int, before: float | None
    ) -> list[Run]:
        query = _select_run().where(~_RUN.deleted)
        if states is not None:
            query = query.where(_RUN.state.in_(list(states)))
        if text:
            wanted = text.lower()
            fields = (_RUN.name, _RUN.id, _RUN.tags)
            query = query.where(
                sa.or_(*(sa.func.lower(f).contains(wanted, autoescape=True) for f in fields))
            )
        if before is not None:
            query = query.where(_RUN.created_at < before)
        query = query.order_by(_RUN.created_at.desc(), _RUN.number.desc()).limit(limit)
        return [_to_run(row) for row in self._connection.execute(query)]

    def live(self) -> list[Run]:
        query = _select_run().where(~_RUN.deleted, _RUN.state.in_(sorted(LIVE_STATES)))
        return [_to_run(row) for row in self._connection.execute(query.order_by(_RUN.number))]

    def ensure(self, run: str, *, at: float) -> Run:
        found = self.get(run)
        if found is None:
            self._create(run, at)
            found = self.get(run)
        if found is None or found.deleted:
            raise Gone(f"Run {run} was deleted.", hint="Start a new run to go on recording.")
        return found

    def _create(self, run: str, at: float) -> None:
        bare = {
            "id": run,
            "name": run,
            "kind": "pretrain",
            "state": "running",
            "created_at": at,
            "last_seen_at": at,
            "clock_skew_s": 0.0,
            "deleted": False,
            "tags": "",
            "facts": {},
        }
        statement = insert(self._connection, tables.run).on_conflict_do_nothing()
        self._connection.execute(statement, bare)
        head = insert(self._connection, tables.log_head).on_conflict_do_nothing()
        self._connection.execute(head, {"run": run, "pos": 0})

    def describe(self, run: str, start: RunStart, *, at: float) -> None:
        facts = to_plain(start)
        facts.pop("kind", None)
        self._update(
            run,
            name=start.name or run,
            kind=start.run_kind,
            tags="\n".join(start.tags),
            facts=facts,
        )

    def touch(self, run: str, *, at: float, last_step: int | None, skew_s: float) -> None:
        values = {"of": run, "at": at, "step": last_step, "skew": skew_s}
        self._connection.execute(_TOUCH, values)

    def set_state(self, run: str, state: RunState, *, at: float, error: str | None) -> None:
        ended_at = None if state in LIVE_STATES else at
        self._update(run, state=state, ended_at=ended_at, error=error)

    def _update(self, run: str, **changes: Any) -> None:
        self._connection.execute(sa.update(tables.run).where(_RUN.id == run).values(**changes))

    def delete(self, run: str, *, at: float) -> None:
        row = self._connection.execute(sa.select(_RUN.number).where(_RUN.id == run)).first()
        if row is None:
            return
        for table in (tables.block, tables.bucket):
            self._connection.execute(sa.delete(table).where(table.c.run == row.number))
        messages = sa.select(tables.outbox.c.id).where(tables.outbox.c.run == run)
        self._connection.execute(
            sa.delete(tables.delivery_try).where(tables.delivery_try.c.message.in_(messages))
        )
        for name in _OWNED_BY_RUN:
            table = tables.metadata.tables[name]
            self._connection.execute(sa.delete(table).where(table.c.run == run))
        self._update(run, deleted=True, ended_at=at, facts={}, tags="", error=None)

    def attempts(self, run: str) -> list[Attempt]:
        query = _select_attempt().where(_ATTEMPT.run == run)
        query = query.order_by(_ATTEMPT.ordinal, _ATTEMPT.number)
        return [to_attempt(row) for row in self._connection.execute(query)]

    def begin_attempt(self, attempt: Attempt) -> bool:
        """See ``base.Runs``; an attempt that was only inferred takes over what is now declared."""
        return self._store_attempt(attempt, declared=True)

    def infer_attempt(self, run: str, attempt: str, *, at: float, first_step: int) -> bool:
        """Store an attempt whose start was never heard, unless it is known.

        The first of a run begins at 0, a later one at the first step seen of it.
        """
        if self._find_attempt(run, attempt) is not None:
            return False
        query = sa.select(sa.func.max(_ATTEMPT.ordinal)).where(_ATTEMPT.run == run)
        last = self._connection.execute(query).scalar()
        inferred = Attempt(
            run=run,
            id=attempt,
            ordinal=0 if last is None else last + 1,
            first_step=0 if last is None else first_step,
            started_at=at,
            reason="its start was not received",
        )
        return self._store_attempt(inferred, declared=False)

    def _store_attempt(self, attempt: Attempt, *, declared: bool) -> bool:
        held = self._find_attempt(attempt.run, attempt.id)
        if held is not None:
            if declared and not held.declared:
                self._declare(attempt)
            return False
        numbers = sa.select(sa.func.coalesce(sa.func.max(_ATTEMPT.number), 0) + 1).where(
            _ATTEMPT.run == attempt.run
        )
        values = {
            "run": attempt.run,
            "id": attempt.id,
            "number": self._connection.execute(numbers).scalar_one(),
            "ordinal": attempt.ordinal,
            "first_step": attempt.first_step,
            "started_at": attempt.started_at,
            "parent": attempt.parent,
            "reason": attempt.reason,
            "declared": declared,
        }
        self._connection.execute(sa.insert(tables.attempt), values)
        return True

    def _find_attempt(self, run: str, attempt: str) -> Row[Any] | None:
        query = sa.select(_ATTEMPT.declared).where(_ATTEMPT.run == run, _ATTEMPT.id == attempt)
        return self._connection.execute(query).first()

    def _declare(self, attempt: Attempt) -> None:
        self._update_attempt(
            attempt.run,
            attempt.id,
            ordinal=attempt.ordinal,
            first_step=attempt.first_step,
            started_at=attempt.started_at,
            parent=attempt.parent,
            reason=attempt.reason,
            declared=True,
        )

    def end_attempt(
        self, run: str, attempt: str, *, at: float, status: str, last_step: int | None
    ) -> None:
        self._update_attempt(run, attempt, ended_at=at, status=status, last_step=last_step)

    def _update_attempt(self, run: str, attempt: str, **changes: Any) -> None:
        statement = sa.update(tables.attempt).where(_ATTEMPT.run == run, _ATTEMPT.id == attempt)
        self._connection.execute(statement.values(**changes))


def _select_run() -> sa.Select[Any]:
    return sa.select(tables.run)


def _to_run(row: Row[Any]) -> Run:
    return Run(
        id=row.id,
        name=row.name,
        kind=row.kind,
        state=row.state,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        facts=row.facts,
        ended_at=row.ended_at,
        error=row.error,
        last_step=row.last_step,
        clock_skew_s=row.clock_skew_s,
        deleted=row.deleted,
    )


def _select_attempt() -> sa.Select[Any]:
    return sa.select(tables.attempt)


def to_attempt(row: Row[Any]) -> Attempt:
    """An attempt from its row."""
    return Attempt(
        run=row.run,
        id=row.id,
        ordinal=row.ordinal,
        first_step=row.first_step,
        started_at=row.started_at,
        parent=row.parent,
        reason=row.reason,
        ended_at=row.ended_at,
        status=row.status,
        last_step=row.last_step,
    )
