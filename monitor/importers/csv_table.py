"""Comma, semicolon or tab separated tables with a line of names, such as loggers and pandas write.

Encoding: UTF-8 with or without a mark, or UTF-16 with one (a shell's redirection on Windows).
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from monitor.errors import UnreadableLog
from monitor.importers.base import RawLog, RawRow, Tally
from monitor.importers.numbers import NotANumber, read_number

DELIMITERS = ",\t;|"


def recognises(head: bytes) -> bool:
    """Whether the first line is a line of names, or the only name there is."""
    try:
        names = header(head)
    except UnreadableLog:
        return False
    return bool(names)


def read(stream: BinaryIO, tally: Tally) -> RawLog:
    """Rows under the names of the first line."""
    return RawLog(table(stream, tally))


def header(head: bytes) -> list[str]:
    """The names of the first line of a file that begins with ``head``.

    Raises:
        UnreadableLog: it is no text, or its first line holds numbers.
    """
    text = head.decode(encoding_of(head), "replace")
    if "\x00" in text:
        raise UnreadableLog("This is not text.")
    first = next((line for line in text.splitlines() if line.strip()), "")
    try:
        names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter(first)), [])]
    except csv.Error as error:
        raise UnreadableLog(f"The first line cannot be read: {error}.") from None
    if not any(names) or all(_is_number(name) for name in names if name):
        raise UnreadableLog("The first line holds no column names.")
    return names


def table(stream: BinaryIO, tally: Tally) -> Iterator[RawRow]:
    """The rows of a table, by column name; lines that do not fit are left out and said so."""
    head = stream.read(1 << 16)
    names = header(head)
    whole = io.BufferedReader(_Joined(head, stream))
    rest = io.TextIOWrapper(whole, encoding_of(head), "replace", newline="")
    first = head.decode(encoding_of(head), "replace").lstrip("\r\n ").splitlines()[0]
    lines = csv.reader(rest, delimiter=delimiter(first))
    seen = False
    while True:
        try:
            cells = next(lines)
        except StopIteration:
            return
        except csv.Error:
            tally.leave("the line is no row of a table", lines.line_num)
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if [cell.strip() for cell in cells] == names:
            if seen:
                tally.leave("the line of names, said again", lines.line_num)
            seen = True
            continue
        if len(cells) > len(names):
            tally.leave("the line has more cells than there are names", lines.line_num)
            continue
        named = zip(names, cells, strict=False)
        yield RawRow(lines.line_num, {name: cell for name, cell in named if name})


def encoding_of(head: bytes) -> str:
    """The encoding a byte order mark tells, else UTF-8."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def delimiter(line: str) -> str:
    """The separator that cuts a line into the most cells."""
    return max(DELIMITERS, key=line.count)


def _is_number(name: str) -> bool:
    try:
        return read_number(name) is not None
    except NotANumber:
        return False


class _Joined(io.RawIOBase):
    """A stream again, after its head was read off."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        super().__init__()
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :] if self._head else b""
        buffer[: len(data)] = data
        return len(data)
