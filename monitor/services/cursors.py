"""The opaque cursor of a live stream: per run, how far the reader has got.

A place is (position, messages): every entry up to the position was sent whole, and of the next one
that many messages. What cannot be read is None, which means: too far back, start over.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping

Place = tuple[int, int]
LONGEST = 16_384


def encode_cursor(places: Mapping[str, Place]) -> str:
    """One line of URL-safe characters."""
    text = json.dumps({run: list(place) for run, place in places.items()}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(text: str) -> dict[str, Place] | None:
    """The places, or None for anything that ``encode_cursor`` did not make."""
    if len(text) > LONGEST:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        places = {str(run): (int(place[0]), int(place[1])) for run, place in found.items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, binascii.Error):
        return None
    sane = all(0 <= pos < 2**63 and 0 <= sent < 2**31 for pos, sent in places.values())
    return places if sane else None
