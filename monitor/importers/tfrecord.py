"""TFRecord framing: length, masked CRC of it, data, masked CRC of that (CRC-32C, Castagnoli)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from monitor.importers.base import Tally

HEADER = struct.Struct("<QI")
CHECKED_BYTES = 16 * 1024
LONGEST_RECORD = 256 * 1024 * 1024
_POLYNOMIAL = 0x82F63B78


def _table() -> tuple[int, ...]:
    entries = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """The form in which TFRecord stores a checksum."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def begins_a_record(head: bytes) -> bool:
    """Whether the first twelve bytes are a length and its own checksum."""
    if len(head) < HEADER.size:
        return False
    return int(HEADER.unpack_from(head)[1]) == masked(crc32c(head[:8]))


def records(stream: BinaryIO, tally: Tally) -> Iterator[tuple[int, bytes]]:
    """(number, data) of the records that can be trusted.

    The checksum of data over 16 KiB is not looked at, and that is said: scalars are shorter, and
    what is longer (images, histograms, graphs) is not read. A record whose data is damaged is left
    out; a damaged length ends the reading, for nothing tells where the next record begins.
    """
    number = 0
    while header := stream.read(HEADER.size):
        number += 1
        if not begins_a_record(header):
            cut = len(header) < HEADER.size
            tally.leave(
                "cut off inside a record" if cut else "a record's length is damaged", number
            )
            return
        length = int(HEADER.unpack(header)[0])
        if length > LONGEST_RECORD:
            tally.leave("a record longer than 256 MiB", number)
            return
        data, check = stream.read(length), stream.read(4)
        if len(check) < 4:
            tally.leave("cut off inside a record", number)
            return
        if length > CHECKED_BYTES:
            tally.leave("a record longer than 16 KiB: no scalar", number)
        elif struct.unpack("<I", check)[0] != masked(crc32c(data)):
            tally.leave("a record's checksum is wrong", number)
        else:
            yield number, data
