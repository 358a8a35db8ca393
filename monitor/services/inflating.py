"""Undoing a body's content coding, in pieces, and never beyond what a body may hold."""

from __future__ import annotations

import zlib

from monitor.errors import MalformedBody, TooLarge, UnsupportedCoding
from trainer_hooks.wire import MAX_BODY_BYTES

_GZIP = 31  # window bits: gzip members only
_PIECE = 256 * 1024


def inflate(body: bytes, coding: str | None, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """The body as it was before its Content-Encoding.

    Raises:
        TooLarge: it holds more than ``limit`` bytes; no more than that was ever inflated.
        MalformedBody: it is not gzip, or cut off.
        UnsupportedCoding: the coding is neither gzip nor none.
    """
    name = (coding or "identity").strip().lower()
    if name in ("identity", ""):
        _check(len(body), limit)
        return body
    if name not in ("gzip", "x-gzip"):
        raise UnsupportedCoding(
            f"Content-Encoding {name!r} is not understood.", hint="Send gzip, or no coding at all."
        )
    return _gunzip(body, limit)


def _gunzip(body: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    rest = body
    while rest:
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            piece = _next_piece(member, rest)
            total += len(piece)
            _check(total, limit)
            pieces.append(piece)
            rest = member.unconsumed_tail
            if not (rest or piece or member.eof):
                raise MalformedBody("The gzip body is cut off.")
        rest = member.unused_data.lstrip(b"\x00")  # padding between members is allowed
    if not pieces:
        raise MalformedBody("The gzip body is empty.")
    return b"".join(pieces)


def _next_piece(member: zlib._Decompress, rest: bytes) -> bytes:
    try:
        return member.decompress(rest, _PIECE)
    except zlib.error as error:
        raise MalformedBody(f"The body is not gzip: {error}.") from None


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(
            f"A body may hold {limit:,} bytes after inflating.", hint="Send smaller batches."
        )
