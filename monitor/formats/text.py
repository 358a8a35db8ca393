"""Words made fit for a receiver: harmless, and not longer than it takes."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from monitor.formats.base import Message
from trainer_hooks.wire import to_plain

Size = Callable[[str], int]
MARK = "…"


@dataclass(frozen=True, slots=True)
class Words:
    """An alert's words, each a line without control characters; links only where they are whole.

    ``lines`` are without the links, which many receivers show as buttons.
    """

    headline: str
    lines: tuple[str, ...]
    link: str
    runbook: str

    @property
    def whole(self) -> tuple[str, ...]:
        """The lines with the links as text at their end."""
        links = (("What this means", self.runbook), ("Show", self.link))
        return (*self.lines, *(f"{label}: {link}" for label, link in links if link))


def words_of(message: Message) -> Words:
    """What a message says, ready to be escaped and fitted."""
    text = message.text
    links = [link for link in (text.link, text.runbook) if link]
    lines = [line for line in text.lines if not any(line.endswith(f": {link}") for link in links)]
    return Words(
        headline=one_line(text.headline),
        lines=tuple(filter(None, map(one_line, lines))),
        link=text.link if is_web_address(text.link) else "",
        runbook=text.runbook if is_web_address(text.runbook) else "",
    )


def one_line(text: str) -> str:
    """One line of it; controls, those that turn the writing direction included, do nothing."""
    shown = (" " if unicodedata.category(char) in ("Cc", "Zl", "Zp") else char for char in text)
    plain = "".join(char for char in shown if not _turns(char))
    return " ".join(plain.encode("utf-8", "replace").decode().split())


def _turns(char: str) -> bool:
    return (
        char in "\u061c\u200e\u200f" or "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069"
    )


def is_web_address(text: str) -> bool:
    """Whether a button may lead there: http or https, and a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def cut(text: str, room: int, size: Size = len) -> str:
    """The text, or its beginning and a mark; ``size`` measures it as the receiver does."""
    if size(text) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle] + MARK) <= room else (low, middle - 1)
    return text[:low] + MARK


def fit(lines: Sequence[str], room: int, size: Size = len) -> list[str]:
    """The first lines whole and ``… (n more)``: what comes last is needed least.

    One line takes half the room at most.
    """
    short = [cut(line, room // 2, size) for line in lines]
    for count in range(len(short), -1, -1):
        left = len(short) - count
        kept = [*short[:count], *([f"{MARK} ({left} more)"] if left else [])]
        if size("\n".join(kept)) <= room:
            return kept
    return []


def in_bytes(text: str) -> int:
    """A size: as UTF-8."""
    return len(text.encode("utf-8", "replace"))


def as_json(payload: Any) -> bytes:
    """UTF-8 JSON; non-finite numbers by their names."""
    text = json.dumps(to_plain(payload), allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def instant(at: float | None) -> str:
    """An instant as RFC 3339 in UTC."""
    return datetime.fromtimestamp(at or 0.0, UTC).isoformat().replace("+00:00", "Z")


def severity_of(message: Message) -> str:
    """``critical``, ``warning`` or ``info``; a digest or a test is information."""
    severity = str(message.alert.get("severity") or "info")
    return severity if severity in ("critical", "warning") else "info"


def authorization(config: Mapping[str, Any]) -> dict[str, str]:
    """The header some receivers want; a bare token is a bearer token."""
    value = str(config.get("authorization") or "").strip()
    if not value:
        return {}
    return {"authorization": value if " " in value else f"Bearer {value}"}


def json_headers(message_id: str) -> dict[str, str]:
    """Headers of every JSON post; the id lets a receiver tell a repeat."""
    return {
        "content-type": "application/json",
        "user-agent": "watchkeeper",
        "webhook-id": message_id,
    }
