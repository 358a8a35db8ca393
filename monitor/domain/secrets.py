"""Showing that a secret is there without showing it."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

MARK = "…"
TAIL = 4
SHOWN_TAIL_FROM = 16
"""Of something shorter the last characters would be too much of it."""
SHORTEST_PART = 6
"""Parts of an address shorter than this are ordinary words (``hook``, ``v2``)."""


def masked(value: str) -> str:
    """At most scheme, host and the last four characters.

    The host is shown for web addresses only: elsewhere (``tgram://token/``) it may be the secret.
    """
    tail = value[-TAIL:] if len(value) >= SHOWN_TAIL_FROM else ""
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
    except ValueError:
        return f"{MARK}{tail}"
    if parts.scheme in ("http", "https"):
        shown = f"[{host}]" if ":" in host else host
        # An address that is no more than its host ends in it, not in a secret.
        secret = parts.path.strip("/") or parts.query or parts.fragment
        return f"{parts.scheme}://{shown}/{MARK}{tail if secret else ''}"
    return f"{MARK}{tail}"


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, whole or in parts, as an answer might repeat them."""
    parts = {part for secret in secrets for part in _parts(secret)}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, MARK)
    return text


def _parts(secret: str) -> set[str]:
    found = {secret} if secret else set()
    try:
        parts = urlsplit(secret)
    except ValueError:
        return found
    if not parts.scheme or "://" not in secret:
        return found
    pieces = [parts.path, parts.query, parts.fragment, parts.netloc.rpartition("@")[0]]
    pieces += parts.path.split("/")
    pieces += [pair.partition("=")[2] for pair in parts.query.split("&")]
    pieces += [] if parts.scheme in ("http", "https") else [parts.netloc, *parts.netloc.split(":")]
    pieces += [unquote(piece) for piece in pieces]
    return found | {piece for piece in pieces if len(piece.strip("/")) >= SHORTEST_PART}
