"""A series: a name, a group and a source as separate fields, joined for display, never split."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Series:
    """What the server knows of one series of a run. ``number`` is its small integer in storage."""

    run: str
    number: int
    key: str
    name: str
    group: str = ""
    source: str = ""
    unit: str = ""
    family: str = "other"
    help: str = ""
    better: str = ""


def matches(key: str, patterns: tuple[str, ...]) -> bool:
    """Whether a series key fits one of the patterns (``*`` stands for anything)."""
    return any(fnmatchcase(key, pattern) for pattern in patterns)
