"""Parameters of detectors that people set."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "tuning",
        sa.Column("detector", sa.Text, primary_key=True),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Go back: detectors judge as shipped."""
    op.drop_table("tuning")
