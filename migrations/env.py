"""Alembic's way in: the connection is handed over by ``monitor.storage.migrate``."""

from __future__ import annotations

from alembic import context

from monitor.storage import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
