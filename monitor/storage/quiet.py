"""Rows hold secrets of channels: the library's log of rows is never written, at any level.

``hide_parameters`` keeps the values that go in out of logs and errors; this does it for those that
come out.
"""

from __future__ import annotations

import logging


def hide_rows() -> None:
    """Idempotent; to be called before an engine is used."""
    logging.getLogger("sqlalchemy.engine.Engine").addFilter(_without_rows)


def _without_rows(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Row ")
