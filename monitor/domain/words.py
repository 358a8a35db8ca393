"""Numbers as people say them."""

from __future__ import annotations


def duration_text(seconds: float) -> str:
    """``0.4 s``, ``40 s``, ``14 min``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds < 9.95:
        return f"{round(seconds, 1):g} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def counted(count: int, what: str) -> str:
    """``1 alert``, ``1,200 alerts``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
