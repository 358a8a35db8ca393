"""Rules people wrote."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from monitor.domain.rule import Rule, rule_from
from monitor.storage import tables
from monitor.storage.dialects import upsert

_RULE = tables.user_rule.c


class SqlRules:
    """``base.Rules`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> list[Rule]:
        rows = self._connection.execute(sa.select(_RULE.body).order_by(_RULE.id))
        return [rule_from(body) for (body,) in rows]

    def save(self, rule: Rule, *, at: float) -> None:
        values = {"id": rule.id, "changed_at": at, "body": asdict(rule)}
        upsert(self._connection, tables.user_rule, values, key=("id",))

    def delete(self, rule: str) -> bool:
        statement = sa.delete(tables.user_rule).where(_RULE.id == rule)
        return self._connection.execute(statement).rowcount == 1
