"""Numbers of answers beside their texts: trends over all days read no text."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to this revision. Answers that are there already are measured when they are asked for."""
    op.add_column("answer", sa.Column("numbers", sa.Text))


def downgrade() -> None:
    """Go back: the texts hold all that the numbers were made of."""
    op.drop_column("answer", "numbers")
