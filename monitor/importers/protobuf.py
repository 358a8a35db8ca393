"""The protobuf wire format, as far as reading needs it: fields of a message, in order."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | bytes

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """(number, wire type, value) of each field; fixed ones as their raw bytes.

    Raises:
        Malformed: cut off, or a wire type that is none.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        value: Value
        if kind == VARINT:
            value, at = varint(data, at)
        elif kind in (FIXED64, FIXED32, BYTES):
            size, at = _size(data, at, kind)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise Malformed("cut off")
        else:
            raise Malformed(f"wire type {kind}")
        yield number, kind, value


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of up to 64 bits, and where it ends."""
    result = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise Malformed("a number without an end")


def signed(value: int) -> int:
    """An int64 as it was before it was written as a varint."""
    return value - (1 << 64) if value >= 1 << 63 else value


def double(raw: bytes) -> float:
    """A fixed64 field as a float."""
    return float(struct.unpack("<d", raw)[0])


def single(raw: bytes) -> float:
    """A fixed32 field as a float."""
    return float(struct.unpack("<f", raw)[0])


def _size(data: bytes, at: int, kind: int) -> tuple[int, int]:
    if kind == BYTES:
        return varint(data, at)
    return (8 if kind == FIXED64 else 4), at
