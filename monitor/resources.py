"""Where the data folders lie: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(packed: str, sibling: str) -> Path:
    inside = _PACKAGE / packed
    return inside if inside.is_dir() else _PACKAGE.parent / sibling


def web_folder() -> Path:
    """Templates and static files of the dashboard."""
    return _folder("_web", "web")


def migrations_folder() -> Path:
    """The alembic scripts."""
    return _folder("_migrations", "migrations")


def docs_folder() -> Path:
    """The documents, of which the dashboard shows the run-books."""
    return _folder("_docs", "docs")
