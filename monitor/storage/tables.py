"""The tables, once, for SQLite and PostgreSQL.

Keys begin with the run, so that runs can be spread over several databases later. ``block`` and
``bucket`` name runs and attempts by their small numbers: they hold nearly all rows, and the text
would weigh more than the points.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from monitor.domain.block import FULL_TIER

NUL_SHOWN = "\u2400"


def storable(text: str) -> str:
    """The text without what PostgreSQL or UTF-8 cannot hold: NUL as U+2400, surrogates as U+FFFD.

    >>> storable("a" + chr(0) + "b")
    'a␀b'
    """
    if "\x00" in text:
        text = text.replace("\x00", NUL_SHOWN)
    if text.isascii():
        return text
    # One encoder for pairs and lone halves alike: pairs join, lone halves become U+FFFD.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Text(TypeDecorator[str]):
    """Text from outside: the same on both databases, whatever is in it."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable(value)


class Json(TypeDecorator[Any]):
    """A JSON value kept as text, so that both databases give back the same bytes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


Float = sa.Double
Big = sa.BigInteger
# SQLite numbers rows by itself only where the key is called INTEGER.
RowNumber = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = sa.MetaData(naming_convention=NAMES)

run = sa.Table(
    "run",
    metadata,
    sa.Column("number", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("id", Text, nullable=False, unique=True),
    sa.Column("name", Text, nullable=False),
    sa.Column("kind", Text, nullable=False),
    sa.Column("state", Text, nullable=False),
    sa.Column("created_at", Float, nullable=False),
    sa.Column("last_seen_at", Float, nullable=False),
    sa.Column("ended_at", Float),
    sa.Column("error", Text),
    sa.Column("last_step", Big),
    sa.Column("clock_skew_s", Float, nullable=False),
    sa.Column("deleted", sa.Boolean, nullable=False),
    sa.Column("tags", Text, nullable=False),
    sa.Column("facts", Json, nullable=False),
    sa.Index("ix_run_created_at", "created_at"),
)

attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("id", Text, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("first_step", Big, nullable=False),
    sa.Column("started_at", Float, nullable=False),
    sa.Column("parent", Text),
    sa.Column("reason", Text, nullable=False),
    sa.Column("ended_at", Float),
    sa.Column("status", Text),
    sa.Column("last_step", Big),
    sa.Column("declared", sa.Boolean, nullable=False),
    sa.UniqueConstraint("run", "number"),
)

log_head = sa.Table(
    "log_head",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("pos", Big, nullable=False),
)

batch = sa.Table(
    "batch",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("pos", Big, primary_key=True),
    sa.Column("kind", Text, nullable=False),
    sa.Column("at", Float, nullable=False),
    sa.Column("attempt", Text, nullable=False),
    sa.Column("source", Text, nullable=False),
    sa.Column("seq", Big, nullable=False),
    sa.Column("through_step", Big),
    sa.Column("points", sa.Integer, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

source = sa.Table(
    "source",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("attempt", Text, primary_key=True),
    sa.Column("source", Text, primary_key=True),
    sa.Column("held_through", Big, nullable=False),
    sa.Column("gaps", Json, nullable=False),
    sa.Column("through_step", Big),
    sa.Column("last_seen_at", Float, nullable=False),
    sa.Column("stored", Big, nullable=False),
    sa.Column("duplicate", Big, nullable=False),
    sa.Column("refused", Big, nullable=False),
    sa.Column("overwritten", Big, nullable=False),
    sa.Column("client", Json, nullable=False),
)

series = sa.Table(
    "series",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("group", Text, nullable=False),
    sa.Column("source", Text, nullable=False),
    sa.Column("unit", Text, nullable=False),
    sa.Column("family", Text, nullable=False),
    sa.Column("help", Text, nullable=False),
    sa.Column("better", Text, nullable=False),
    sa.UniqueConstraint("run", "key"),
)

_OPEN = sa.text(f"tier < {FULL_TIER}")

block = sa.Table(
    "block",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("run", Big, nullable=False),
    sa.Column("series", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("first_step", Big, nullable=False),
    sa.Column("last_step", Big, nullable=False),
    sa.Column("first_time", Float, nullable=False),
    sa.Column("last_time", Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("non_finite", sa.Integer, nullable=False),
    sa.Column("low", Float),
    sa.Column("high", Float),
    sa.Column("total", Float),
    sa.Column("rank", Big, nullable=False),
    sa.Column("tier", sa.SmallInteger, nullable=False),
    # Last, so that reading a summary never touches the pages the body spills to.
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("ix_block_place", "run", "series", "attempt", "last_step"),
    sa.Index(
        "ix_block_open",
        "run",
        "series",
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    ),
)

bucket = sa.Table(
    "bucket",
    metadata,
    sa.Column("run", Big, primary_key=True, autoincrement=False),
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("first_step", Big, primary_key=True, autoincrement=False),
    sa.Column("last_step", Big, nullable=False),
    sa.Column("first_time", Float, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("non_finite", sa.Integer, nullable=False),
    sa.Column("low", Float),
    sa.Column("high", Float),
    sa.Column("mean", Float),
    sa.Column("last", Float),
    sa.Column("last_kind", Text, nullable=False),
    sqlite_with_rowid=False,
)

reader = sa.Table(
    "reader",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("reader", Text, primary_key=True),
    sa.Column("pos", Big, nullable=False),
    sa.Column("epoch", Big, nullable=False),
    sa.Column("owner", Text, nullable=False),
    sa.Column("leased_until", Float, nullable=False),
)

snapshot = sa.Table(
    "snapshot",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("reader", Text, primary_key=True),
    sa.Column("pos", Big, nullable=False),
    sa.Column("state", Json, nullable=False),
)

event = sa.Table(
    "event",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("number", Big, primary_key=True, autoincrement=False),
    sa.Column("pos", Big, nullable=False),
    sa.Column("attempt", Text, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("step", Big, nullable=False),
    sa.Column("at", Float, nullable=False),
    sa.Column("text", Text, nullable=False),
    sa.Column("data", Json, nullable=False),
)

phase = sa.Table(
    "phase",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("attempt", Text, primary_key=True),
    sa.Column("phase_id", Text, primary_key=True),
    sa.Column("pos", Big, nullable=False),
    sa.Column("name", Text, nullable=False),
    sa.Column("begin_step", Big, nullable=False),
    sa.Column("begin_at", Float, nullable=False),
    sa.Column("end_step", Big),
    sa.Column("end_at", Float),
    sa.Column("path", Text),
    sa.Column("text", Text, nullable=False),
)

answer = sa.Table(
    "answer",
    metadata,
    sa.Column("run", Text, primary_key=True),
    sa.Column("sampling", Text, primary_key=True),
    sa.Column("prompt", Text, primary_key=True),
    sa.Column("attempt", Text, nullable=False),
    sa.Column("weights_step", Big, nullable=False),
    sa.Column("at", Float, nullable=False),
    sa.Column("stored_at", Float, nullable=False),
    sa.Column("prompt_set_hash", Text, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("numbers", Json),
)

alert = sa.Table(
    "alert",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("run", Text, nullable=False),
    sa.Column("detector", Text, nullable=False),
    sa.Column("subject", Text, nullable=False),
    sa.Column("episode", sa.Integer, nullable=False),
    sa.Column("state", Text, nullable=False),
    sa.Column("severity", Text, nullable=False),
    sa.Column("title", Text, nullable=False),
    sa.Column("attempt", Text, nullable=False),
    sa.Column("onset_step", Big, nullable=False),
    sa.Column("onset_at", Float, nullable=False),
    sa.Column("opened_step", Big, nullable=False),
    sa.Column("opened_at", Float, nullable=False),
    sa.Column("last_step", Big, nullable=False),
    sa.Column("acknowledged_at", Float),
    sa.Column("acknowledged_by", Text),
    sa.Column("acknowledged_note", Text, nullable=False),
    sa.Column("resolved_step", Big),
    sa.Column("resolved_at", Float),
    sa.Column("resolved_reason", Text),
    sa.Column("evidence", Json, nullable=False),
    sa.Column("incident", Text, nullable=False),
    sa.Index("ix_alert_run", "run", "opened_at"),
    sa.Index("ix_alert_incident", "incident"),
    sa.Index("ix_alert_opened_at", "opened_at"),
    sa.Index("ix_alert_state", "state"),
)

alert_change = sa.Table(
    "alert_change",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("run", Text, nullable=False),
    sa.Column("alert", Text, nullable=False),
    sa.Column("old", Text, nullable=False),
    sa.Column("new", Text, nullable=False),
    sa.Column("reason", Text, nullable=False),
    sa.Column("at", Float, nullable=False),
    sa.Column("step", Big),
    sa.Column("by", Text),
    sa.Index("ix_alert_change_alert", "alert"),
)

channel = sa.Table(
    "channel",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("name", Text, nullable=False),
    sa.Column("format", Text, nullable=False),
    sa.Column("config", Json, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("disabled_reason", Text, nullable=False),
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("number", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("id", Text, nullable=False, unique=True),
    sa.Column("run", Text, nullable=False),
    sa.Column("alert", Text, nullable=False),
    sa.Column("channel", Text, nullable=False),
    sa.Column("moment", Text, nullable=False),
    sa.Column("created_at", Float, nullable=False),
    sa.Column("due_at", Float, nullable=False),
    sa.Column("state", Text, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("payload", sa.LargeBinary),
    sa.Column("claimed_by", Text),
    sa.Column("claimed_until", Float),
    sa.Column("settled_at", Float),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_error", Text, nullable=False),
    sa.Column("detector", Text, nullable=False),
    sa.Column("severity", Text, nullable=False),
    sa.Column("held", Text, nullable=False),
    sa.Column("folded_into", Text, nullable=False),
    sa.Index("ix_outbox_alert", "alert"),
    sa.Index("ix_outbox_rule", "channel", "detector", "run"),
    sa.Index("ix_outbox_folded_into", "folded_into"),
    sa.Index("ix_outbox_state_due_at", "state", "due_at"),
)

delivery_try = sa.Table(
    "delivery_try",
    metadata,
    sa.Column("id", RowNumber, primary_key=True, autoincrement=True),
    sa.Column("message", Text, nullable=False),
    sa.Column("at", Float, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("latency_s", Float, nullable=False),
    sa.Column("error", Text, nullable=False),
    sa.Index("ix_delivery_try_message", "message"),
)

silence = sa.Table(
    "silence",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("run", Text, nullable=False),
    sa.Column("detector", Text, nullable=False),
    sa.Column("tag", Text, nullable=False),
    sa.Column("zone", Text, nullable=False),
    sa.Column("starts_at", Float),
    sa.Column("ends_at", Float),
    sa.Column("begin", Text, nullable=False),
    sa.Column("end", Text, nullable=False),
    sa.Column("days", Json, nullable=False),
    sa.Column("comment", Text, nullable=False),
    sa.Column("by", Text, nullable=False),
    sa.Column("created_at", Float, nullable=False),
)

user_rule = sa.Table(
    "user_rule",
    metadata,
    sa.Column("id", Text, primary_key=True),
    sa.Column("changed_at", Float, nullable=False),
    sa.Column("body", Json, nullable=False),
)

tuning = sa.Table(
    "tuning",
    metadata,
    sa.Column("detector", Text, primary_key=True),
    sa.Column("params", Json, nullable=False),
    sa.Column("changed_at", Float, nullable=False),
    sa.Column("by", Text, nullable=False),
)
