"""Messages waiting to leave, and every try made at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.storage import tables
from monitor.storage.base import DeliveryTry, OutboxRow, OutboxState
from monitor.storage.dialects import insert

_OUT = tables.outbox.c
_TRY = tables.delivery_try.c
_FIELDS = [field.name for field in fields(OutboxRow)]
_TRY_FIELDS = [field.name for field in fields(DeliveryTry)]
_UNSETTLED = ("waiting", "sending", "held")
_RECENT_S = 3600.0
_DECIDING = 0x77617463685F6F75
"""An advisory lock of ours ("watch_ou")."""


class SqlOutbox:
    """``base.Outbox`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def enqueue(self, rows: Sequence[OutboxRow]) -> None:
        if rows:
            statement = insert(self._connection, tables.outbox)
            values = [{name: getattr(row, name) for name in _FIELDS} for row in rows]
            done = statement.on_conflict_do_nothing(index_elements=["id"])
            self._connection.execute(done, values)

    def claim(self, *, owner: str, now: float, lease_s: float, limit: int) -> list[OutboxRow]:
        claimed: list[OutboxRow] = []
        for message in self._connection.execute(_due(now).limit(limit)).scalars().all():
            # Asked again in the UPDATE: between the two statements another may have taken it.
            taken = self._connection.execute(
                sa.update(tables.outbox)
                .where(_OUT.id == message, _claimable(now))
                .values(
                    state="sending",
                    tries=_OUT.tries + 1,
                    claimed_by=owner,
                    claimed_until=now + lease_s,
                )
                .returning(tables.outbox)
            ).first()
            if taken is not None:
                claimed.append(_to_row(taken))
        return claimed

    def freeze(self, message: str, payload: bytes) -> None:
        statement = sa.update(tables.outbox).where(_OUT.id == message, _OUT.payload.is_(None))
        self._connection.execute(statement.values(payload=payload))

    def settle(
        self,
        message: str,
        *,
        owner: str,
        state: OutboxState,
        at: float,
        due_at: float | None,
        attempt: DeliveryTry | None,
    ) -> bool:
        changes: dict[str, Any] = {
            "state": state,
            "claimed_by": None,
            "claimed_until": None,
            "settled_at": None if state in _UNSETTLED else at,
        }
        if due_at is not None:
            changes["due_at"] = due_at
        if attempt is not None:
            changes |= {"last_status": attempt.status, "last_error": attempt.error}
        ours = sa.update(tables.outbox).where(
            _OUT.id == message, _OUT.state == "sending", _OUT.claimed_by == owner
        )
        if self._connection.execute(ours.values(**changes)).rowcount != 1:
            return False
        if attempt is not None:
            self.note_try(attempt)
        return True

    def note_try(self, attempt: DeliveryTry) -> None:
        values = {name: getattr(attempt, name) for name in _TRY_FIELDS}
        self._connection.execute(sa.insert(tables.delivery_try), values)

    def cancel(self, alert: str, *, moment: str, at: float) -> int:
        statement = sa.update(tables.outbox).where(
            _OUT.alert == alert,
            _OUT.moment == moment,
            _OUT.state.in_(("waiting", "held")),
            _OUT.tries == 0,
        )
        done = self._connection.execute(statement.values(state="cancelled", settled_at=at))
        return int(done.rowcount)

    def of_alert(self, alert: str) -> list[tuple[OutboxRow, list[DeliveryTry]]]:
        query = sa.select(tables.outbox).where(_OUT.alert == alert).order_by(_OUT.number)
        rows = [_to_row(row) for row in self._connection.execute(query)]
        tries: dict[str, list[DeliveryTry]] = {row.id: [] for row in rows}
        held = sa.select(tables.delivery_try).where(_TRY.message.in_(list(tries)))
        for row in self._connection.execute(held.order_by(_TRY.id)):
            tries[row.message].append(DeliveryTry(**{n: getattr(row, n) for n in _TRY_FIELDS}))
        return [(row, tries[row.id]) for row in rows]

    def get(self, message: str) -> OutboxRow | None:
        row = self._connection.execute(sa.select(tables.outbox).where(_OUT.id == message)).first()
        return None if row is None else _to_row(row)

    def lock(self) -> None:
        if self._connection.dialect.name == "postgresql":
            self._connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_DECIDING)))

    def of_rule(self, channel: str, detector: str, *, run: str | None) -> list[OutboxRow]:
        newest = sa.select(sa.func.max(_OUT.created_at)).scalar_subquery()
        lately = sa.and_(_OUT.state == "sent", _OUT.settled_at > newest - _RECENT_S)
        query = sa.select(tables.outbox).where(
            _OUT.channel == channel,
            _OUT.detector == detector,
            sa.or_(_OUT.state.in_(_UNSETTLED), lately),
        )
        if run is not None:
            query = query.where(_OUT.run == run)
        return [_to_row(row) for row in self._connection.execute(query.order_by(_OUT.number))]

    def tries(self, message: str) -> list[DeliveryTry]:
        query = sa.select(tables.delivery_try).where(_TRY.message == message).order_by(_TRY.id)
        rows = self._connection.execute(query)
        return [DeliveryTry(**{n: getattr(row, n) for n in _TRY_FIELDS}) for row in rows]

    def folded(self, message: str) -> list[OutboxRow]:
        query = sa.select(tables.outbox).where(_OUT.folded_into == message)
        return [_to_row(row) for row in self._connection.execute(query.order_by(_OUT.number))]

    def hold(self, message: str, *, owner: str, until: float, why: str) -> bool:
        ours = sa.update(tables.outbox).where(
            _OUT.id == message, _OUT.state == "sending", _OUT.claimed_by == owner
        )
        held = ours.values(
            state="held",
            held=why,
            due_at=until,
            tries=_OUT.tries - 1,
            claimed_by=None,
            claimed_until=None,
        )
        return self._connection.execute(held).rowcount == 1

    def postpone(self, channel: str, *, until: float) -> int:
        statement = sa.update(tables.outbox).where(
            _OUT.channel == channel, _OUT.state == "waiting", _OUT.due_at < until
        )
        return int(self._connection.execute(statement.values(due_at=until)).rowcount)

    def fold(self, messages: Sequence[str], *, into: str, at: float) -> int:
        statement = sa.update(tables.outbox).where(
            _OUT.id.in_(list(messages)), _OUT.state.in_(_UNSETTLED), _OUT.payload.is_(None)
        )
        folded = statement.values(
            state="folded", folded_into=into, settled_at=at, claimed_by=None, claimed_until=None
        )
        return int(self._connection.execute(folded).rowcount)

    def fold_held(self, channel: str, *, why: str, into: str, at: float) -> int:
        statement = sa.update(tables.outbox).where(
            _OUT.channel == channel, _OUT.state == "held", _OUT.held == why
        )
        folded = statement.values(state="folded", folded_into=into, settled_at=at)
        return int(self._connection.execute(folded).rowcount)

    def release(self, *, at: float, alert: str | None = None) -> int:
        statement = sa.update(tables.outbox).where(_OUT.state == "held", _OUT.due_at > at)
        if alert is not None:
            statement = statement.where(_OUT.alert == alert)
        return int(self._connection.execute(statement.values(due_at=at)).rowcount)

    def counts(self) -> dict[str, int]:
        query = sa.select(_OUT.state, sa.func.count()).group_by(_OUT.state)
        return {state: count for state, count in self._connection.execute(query)}

    def oldest_waiting(self) -> float | None:
        query = sa.select(sa.func.min(_OUT.created_at)).where(
            _OUT.state.in_(("waiting", "sending"))
        )
        oldest = self._connection.execute(query).scalar()
        return None if oldest is None else float(oldest)


def _claimable(now: float) -> sa.ColumnElement[bool]:
    lapsed = sa.and_(_OUT.state == "sending", _OUT.claimed_until < now)
    ready = sa.and_(_OUT.state.in_(("waiting", "held")), _OUT.due_at <= now)
    return sa.or_(ready, lapsed)


def _due(now: float) -> sa.Select[tuple[str]]:
    """Ids of due messages whose channel owes nothing older of the same alert."""
    earlier = tables.outbox.alias("earlier")
    blocked = sa.exists().where(
        earlier.c.channel == _OUT.channel,
        earlier.c.alert == _OUT.alert,
        earlier.c.number < _OUT.number,
        earlier.c.state.in_(_UNSETTLED),
    )
    return sa.select(_OUT.id).where(_claimable(now), ~blocked).order_by(_OUT.due_at, _OUT.number)


def _to_row(row: Row[Any]) -> OutboxRow:
    return OutboxRow(**{name: getattr(row, name) for name in _FIELDS})
