"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Text = sa.Text
Json = sa.Text
Float = sa.Double
Big = sa.BigInteger
RowNumber = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Go to this revision."""
    _create_run()
    _create_attempt()
    _create_log_head()
    _create_batch()
    _create_source()
    _create_series()
    _create_block()
    _create_bucket()
    _create_reader()
    _create_snapshot()
    _create_event()
    _create_phase()
    _create_answer()
    _create_alert()
    _create_alert_change()
    _create_channel()
    _create_outbox()
    _create_delivery_try()


def downgrade() -> None:
    """Go back to an empty database."""
    for name in TABLES:
        op.drop_table(name)


TABLES = (
    "run",
    "attempt",
    "log_head",
    "batch",
    "source",
    "series",
    "block",
    "bucket",
    "reader",
    "snapshot",
    "event",
    "phase",
    "answer",
    "alert",
    "alert_change",
    "channel",
    "outbox",
    "delivery_try",
)


def _create_run() -> None:
    op.create_table(
        "run",
        sa.Column("number", RowNumber, nullable=False, autoincrement=True),
        sa.Column("id", Text, nullable=False),
        sa.UniqueConstraint("id", name="uq_run_id"),
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
        sa.PrimaryKeyConstraint("number", name="pk_run"),
    )
    op.create_index("ix_run_created_at", "run", ["created_at"])


def _create_attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("run", Text, nullable=False),
        sa.Column("id", Text, nullable=False),
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
        sa.UniqueConstraint("run", "number", name="uq_attempt_run_number"),
        sa.PrimaryKeyConstraint("run", "id", name="pk_attempt"),
    )


def _create_log_head() -> None:
    op.create_table(
        "log_head",
        sa.Column("run", Text, nullable=False),
        sa.Column("pos", Big, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_log_head"),
    )


def _create_batch() -> None:
    op.create_table(
        "batch",
        sa.Column("run", Text, nullable=False),
        sa.Column("pos", Big, nullable=False, autoincrement=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("at", Float, nullable=False),
        sa.Column("attempt", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("seq", Big, nullable=False),
        sa.Column("through_step", Big),
        sa.Column("points", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run", "pos", name="pk_batch"),
    )


def _create_source() -> None:
    op.create_table(
        "source",
        sa.Column("run", Text, nullable=False),
        sa.Column("attempt", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("held_through", Big, nullable=False),
        sa.Column("gaps", Json, nullable=False),
        sa.Column("through_step", Big),
        sa.Column("last_seen_at", Float, nullable=False),
        sa.Column("stored", Big, nullable=False),
        sa.Column("duplicate", Big, nullable=False),
        sa.Column("refused", Big, nullable=False),
        sa.Column("overwritten", Big, nullable=False),
        sa.Column("client", Json, nullable=False),
        sa.PrimaryKeyConstraint("run", "attempt", "source", name="pk_source"),
    )


def _create_series() -> None:
    op.create_table(
        "series",
        sa.Column("run", Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("group", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("family", Text, nullable=False),
        sa.Column("help", Text, nullable=False),
        sa.Column("better", Text, nullable=False),
        sa.UniqueConstraint("run", "key", name="uq_series_run_key"),
        sa.PrimaryKeyConstraint("run", "number", name="pk_series"),
    )


def _create_block() -> None:
    op.create_table(
        "block",
        sa.Column("id", RowNumber, nullable=False, autoincrement=True),
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
        sa.PrimaryKeyConstraint("id", name="pk_block"),
    )
    op.create_index("ix_block_place", "block", ["run", "series", "attempt", "last_step"])
    op.create_index(
        "ix_block_open",
        "block",
        ["run", "series"],
        sqlite_where=sa.text("tier < 3"),
        postgresql_where=sa.text("tier < 3"),
    )


def _create_bucket() -> None:
    op.create_table(
        "bucket",
        sa.Column("run", Big, nullable=False, autoincrement=False),
        sa.Column("series", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("first_step", Big, nullable=False, autoincrement=False),
        sa.Column("last_step", Big, nullable=False),
        sa.Column("first_time", Float, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("non_finite", sa.Integer, nullable=False),
        sa.Column("low", Float),
        sa.Column("high", Float),
        sa.Column("mean", Float),
        sa.Column("last", Float),
        sa.Column("last_kind", Text, nullable=False),
        sa.PrimaryKeyConstraint("run", "series", "attempt", "first_step", name="pk_bucket"),
        sqlite_with_rowid=False,
    )


def _create_reader() -> None:
    op.create_table(
        "reader",
        sa.Column("run", Text, nullable=False),
        sa.Column("reader", Text, nullable=False),
        sa.Column("pos", Big, nullable=False),
        sa.Column("epoch", Big, nullable=False),
        sa.Column("owner", Text, nullable=False),
        sa.Column("leased_until", Float, nullable=False),
        sa.PrimaryKeyConstraint("run", "reader", name="pk_reader"),
    )


def _create_snapshot() -> None:
    op.create_table(
        "snapshot",
        sa.Column("run", Text, nullable=False),
        sa.Column("reader", Text, nullable=False),
        sa.Column("pos", Big, nullable=False),
        sa.Column("state", Json, nullable=False),
        sa.PrimaryKeyConstraint("run", "reader", name="pk_snapshot"),
    )


def _create_event() -> None:
    op.create_table(
        "event",
        sa.Column("run", Text, nullable=False),
        sa.Column("number", Big, nullable=False, autoincrement=False),
        sa.Column("pos", Big, nullable=False),
        sa.Column("attempt", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("step", Big, nullable=False),
        sa.Column("at", Float, nullable=False),
        sa.Column("text", Text, nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.PrimaryKeyConstraint("run", "number", name="pk_event"),
    )


def _create_phase() -> None:
    op.create_table(
        "phase",
        sa.Column("run", Text, nullable=False),
        sa.Column("attempt", Text, nullable=False),
        sa.Column("phase_id", Text, nullable=False),
        sa.Column("pos", Big, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("begin_step", Big, nullable=False),
        sa.Column("begin_at", Float, nullable=False),
        sa.Column("end_step", Big),
        sa.Column("end_at", Float),
        sa.Column("path", Text),
        sa.Column("text", Text, nullable=False),
        sa.PrimaryKeyConstraint("run", "attempt", "phase_id", name="pk_phase"),
    )


def _create_answer() -> None:
    op.create_table(
        "answer",
        sa.Column("run", Text, nullable=False),
        sa.Column("sampling", Text, nullable=False),
        sa.Column("prompt", Text, nullable=False),
        sa.Column("attempt", Text, nullable=False),
        sa.Column("weights_step", Big, nullable=False),
        sa.Column("at", Float, nullable=False),
        sa.Column("stored_at", Float, nullable=False),
        sa.Column("prompt_set_hash", Text, nullable=False),
        sa.Column("body", Json, nullable=False),
        sa.PrimaryKeyConstraint("run", "sampling", "prompt", name="pk_answer"),
    )


def _create_alert() -> None:
    op.create_table(
        "alert",
        sa.Column("id", Text, nullable=False),
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
        sa.PrimaryKeyConstraint("id", name="pk_alert"),
    )
    op.create_index("ix_alert_run", "alert", ["run", "opened_at"])
    op.create_index("ix_alert_opened_at", "alert", ["opened_at"])
    op.create_index("ix_alert_state", "alert", ["state"])


def _create_alert_change() -> None:
    op.create_table(
        "alert_change",
        sa.Column("id", RowNumber, nullable=False, autoincrement=True),
        sa.Column("run", Text, nullable=False),
        sa.Column("alert", Text, nullable=False),
        sa.Column("old", Text, nullable=False),
        sa.Column("new", Text, nullable=False),
        sa.Column("reason", Text, nullable=False),
        sa.Column("at", Float, nullable=False),
        sa.Column("step", Big),
        sa.Column("by", Text),
        sa.PrimaryKeyConstraint("id", name="pk_alert_change"),
    )
    op.create_index("ix_alert_change_alert", "alert_change", ["alert"])


def _create_channel() -> None:
    op.create_table(
        "channel",
        sa.Column("id", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("format", Text, nullable=False),
        sa.Column("config", Json, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_channel"),
    )


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("number", RowNumber, nullable=False, autoincrement=True),
        sa.Column("id", Text, nullable=False),
        sa.UniqueConstraint("id", name="uq_outbox_id"),
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
        sa.PrimaryKeyConstraint("number", name="pk_outbox"),
    )
    op.create_index("ix_outbox_alert", "outbox", ["alert"])
    op.create_index("ix_outbox_state_due_at", "outbox", ["state", "due_at"])


def _create_delivery_try() -> None:
    op.create_table(
        "delivery_try",
        sa.Column("id", RowNumber, nullable=False, autoincrement=True),
        sa.Column("message", Text, nullable=False),
        sa.Column("at", Float, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("latency_s", Float, nullable=False),
        sa.Column("error", Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_delivery_try"),
    )
    op.create_index("ix_delivery_try_message", "delivery_try", ["message"])
