"""Numbers as logs write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_ABSENT = frozenset({"", "-", "--", "null", "none", "n/a", "na", "undefined"})
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\(\s*['\"\[]?([^,()'\"\[\]]+)['\"\]]?\s*(?:,[^()]*)?\)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_LONGEST = 64


class NotANumber(ValueError):
    """The cell holds something, and it is no number."""


def read_number(cell: Any) -> float | None:
    """A cell as a float, NaN and the infinities among them; None where nothing was logged.

    >>> read_number("np.float64(2.5)")
    2.5

    Raises:
        NotANumber: text, a truth value, a list.
    """
    if cell is None:
        return None
    if isinstance(cell, bool):
        raise NotANumber
    if isinstance(cell, (int, float)):
        return _whole(cell)
    if isinstance(cell, str):
        return _from_text(cell.strip())
    raise NotANumber


def _whole(cell: float) -> float:
    try:
        return float(cell)
    except OverflowError:
        raise NotANumber from None


def _from_text(text: str) -> float | None:
    if text.lower() in _ABSENT:
        return None
    if len(text) > _LONGEST:
        raise NotANumber
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped:
        text = wrapped.group(1).strip()
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if "_" in text:
        raise NotANumber
    try:
        return float(text)
    except ValueError:
        raise NotANumber from None


def read_instant(cell: Any) -> float | None:
    """Seconds since 1970 (UTC) of an ISO date, else the number it is, else None."""
    try:
        return read_number(cell)
    except NotANumber:
        pass
    if not isinstance(cell, str) or len(cell) > _LONGEST:
        return None
    try:
        read = datetime.fromisoformat(cell.strip())
    except ValueError:
        return _clock_span(cell.strip())
    try:
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None


def _clock_span(text: str) -> float | None:
    """``1 day, 2:03:04`` or ``0:12:33`` as seconds."""
    found = re.fullmatch(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d{2}):(\d{2})(?:\.\d+)?", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
