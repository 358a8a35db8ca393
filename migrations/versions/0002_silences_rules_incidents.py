"""Silences, people's own rules, incidents, and messages that are held or folded into others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

Text = sa.Text
Float = sa.Double

OUTBOX = ("detector", "severity", "held", "folded_into")


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("alert", _words("incident"))
    op.create_index("ix_alert_incident", "alert", ["incident"])
    for name in OUTBOX:
        op.add_column("outbox", _words(name))
    op.create_index("ix_outbox_rule", "outbox", ["channel", "detector", "run"])
    op.create_index("ix_outbox_folded_into", "outbox", ["folded_into"])
    _create_silence()
    _create_user_rule()


def downgrade() -> None:
    """Go back to the first schema; messages that never left are as if they had been withdrawn."""
    op.execute("UPDATE outbox SET state = 'cancelled' WHERE state IN ('held', 'folded')")
    op.drop_table("user_rule")
    op.drop_table("silence")
    op.drop_index("ix_outbox_folded_into", "outbox")
    op.drop_index("ix_outbox_rule", "outbox")
    for name in reversed(OUTBOX):
        op.drop_column("outbox", name)
    op.drop_index("ix_alert_incident", "alert")
    op.drop_column("alert", "incident")


def _words(name: str) -> sa.Column[str]:
    return sa.Column(name, Text, nullable=False, server_default="")


def _create_silence() -> None:
    op.create_table(
        "silence",
        sa.Column("id", Text, nullable=False),
        sa.Column("run", Text, nullable=False),
        sa.Column("detector", Text, nullable=False),
        sa.Column("tag", Text, nullable=False),
        sa.Column("zone", Text, nullable=False),
        sa.Column("starts_at", Float),
        sa.Column("ends_at", Float),
        sa.Column("begin", Text, nullable=False),
        sa.Column("end", Text, nullable=False),
        sa.Column("days", Text, nullable=False),
        sa.Column("comment", Text, nullable=False),
        sa.Column("by", Text, nullable=False),
        sa.Column("created_at", Float, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_silence"),
    )


def _create_user_rule() -> None:
    op.create_table(
        "user_rule",
        sa.Column("id", Text, nullable=False),
        sa.Column("changed_at", Float, nullable=False),
        sa.Column("body", Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_user_rule"),
    )
