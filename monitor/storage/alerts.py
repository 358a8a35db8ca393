"""Alerts and every change of their state."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from monitor.domain.alert import Alert, AlertChange
from monitor.storage import tables
from monitor.storage.dialects import upsert

_ALERT = tables.alert.c
_CHANGE = tables.alert_change.c
_FIELDS = [field.name for field in fields(Alert)]
_CHANGE_FIELDS = [field.name for field in fields(AlertChange)]


class SqlAlerts:
    """``base.Alerts`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, alert: str) -> Alert | None:
        query = sa.select(tables.alert).where(_ALERT.id == alert)
        row = self._connection.execute(query).first()
        return None if row is None else _to_alert(row)

    def of_run(self, run: str, *, open_only: bool = False) -> list[Alert]:
        return self._newest(_some(open_only).where(_ALERT.run == run))

    def find(self, *, open_only: bool, run: str | None, limit: int) -> list[Alert]:
        query = _some(open_only)
        if run is not None:
            query = query.where(_ALERT.run == run)
        return self._newest(query.limit(limit))

    def _newest(self, query: sa.Select[Any]) -> list[Alert]:
        ordered = query.order_by(_ALERT.opened_at.desc(), _ALERT.id)
        return [_to_alert(row) for row in self._connection.execute(ordered)]

    def open_counts(self) -> dict[str, dict[str, int]]:
        query = (
            sa.select(_ALERT.run, _ALERT.severity, sa.func.count())
            .where(_ALERT.state != "resolved")
            .group_by(_ALERT.run, _ALERT.severity)
        )
        counts: dict[str, dict[str, int]] = {}
        for run, severity, count in self._connection.execute(query):
            counts.setdefault(run, {})[severity] = count
        return counts

    def save(self, alert: Alert, change: AlertChange | None) -> None:
        values = {name: getattr(alert, name) for name in _FIELDS}
        upsert(self._connection, tables.alert, values, key=("id",))
        if change is not None:
            row = {name: getattr(change, name) for name in _CHANGE_FIELDS}
            self._connection.execute(sa.insert(tables.alert_change), row)

    def changes(self, alert: str) -> list[AlertChange]:
        query = sa.select(tables.alert_change).where(_CHANGE.alert == alert).order_by(_CHANGE.id)
        rows = self._connection.execute(query)
        return [AlertChange(**{n: getattr(row, n) for n in _CHANGE_FIELDS}) for row in rows]

    def of_incident(self, incident: str) -> list[Alert]:
        named = sa.or_(_ALERT.incident == incident, _ALERT.id == incident)
        return self._newest(sa.select(tables.alert).where(named))

    def of_detector(self, run: str, detector: str, *, since: float) -> list[Alert]:
        query = _some(open_only=False).where(
            _ALERT.run == run, _ALERT.detector == detector, _ALERT.opened_at >= since
        )
        return self._newest(query)

    def history(self, run: str, *, limit: int) -> list[AlertChange]:
        query = sa.select(tables.alert_change).where(_CHANGE.run == run)
        rows = self._connection.execute(query.order_by(_CHANGE.id.desc()).limit(limit))
        return [AlertChange(**{n: getattr(row, n) for n in _CHANGE_FIELDS}) for row in rows]

    def labelled(self, run: str) -> list[Alert]:
        query = _some(open_only=False).where(_ALERT.run == run)
        return self._newest(query.where(_ALERT.resolved_reason == "was_fine"))


def _some(open_only: bool) -> sa.Select[Any]:
    query = sa.select(tables.alert)
    return query.where(_ALERT.state != "resolved") if open_only else query


def _to_alert(row: Row[Any]) -> Alert:
    return Alert(**{name: getattr(row, name) for name in _FIELDS})
