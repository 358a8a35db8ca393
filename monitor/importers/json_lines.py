"""One JSON object a line (or one list of objects), as trainers write them by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from monitor.errors import UnreadableLog
from monitor.importers.base import RawLog, RawRow, Tally

LONGEST_LINE = 4 * 1024 * 1024
LONGEST_DOCUMENT = 512 * 1024 * 1024
DEEPEST = 8


def recognises(head: bytes) -> bool:
    """Whether it begins with an object that ends on its line, or with a list of objects."""
    text = head.decode("utf-8-sig", "replace").lstrip()
    first = text.split("\n", 1)[0].strip()
    if text.startswith("["):
        return text[1:].lstrip().startswith("{")
    return text.startswith("{") and isinstance(decode(first), dict)


def read(stream: BinaryIO, tally: Tally) -> RawLog:
    """Rows of a file of lines or of one list; nested objects become ``a/b`` names.

    Raises:
        UnreadableLog: a list that cannot be read to its end.
    """
    first = stream.readline(LONGEST_LINE)
    if first.decode("utf-8-sig", "replace").lstrip().startswith("["):
        return RawLog(_listed(document(first + stream.read(LONGEST_DOCUMENT)), tally))
    return RawLog(_lines(first, stream, tally))


def document(data: bytes) -> Any:
    """A whole JSON document.

    Raises:
        UnreadableLog: it is none, or too deep or too long to be read.
    """
    if len(data) > LONGEST_DOCUMENT:
        raise UnreadableLog("This JSON document is too long to be read at once.")
    try:
        return json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as error:
        reason = "too deep" if isinstance(error, RecursionError) else str(error)
        raise UnreadableLog(f"This is not a JSON document: {reason}.") from None


def decode(line: str) -> Any:
    """The line's value, or None where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def flatten(record: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Nested objects as one, their names joined by a slash; what lies deeper is left as it is."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict) and depth < DEEPEST:
            inner = flatten(value, depth + 1)
            flat.update({f"{name}/{key}": item for key, item in inner.items()})
        else:
            flat[str(name)] = value
    return flat


def _listed(found: Any, tally: Tally) -> Iterator[RawRow]:
    for number, item in enumerate(found if isinstance(found, list) else [], start=1):
        if isinstance(item, dict):
            yield RawRow(number, flatten(item))
        else:
            tally.leave("the element is no object", number)


def _lines(first: bytes, stream: BinaryIO, tally: Tally) -> Iterator[RawRow]:
    line, number = first, 1
    while line:
        text = line.decode("utf-8-sig", "replace").strip()
        record = decode(text) if text else None
        if isinstance(record, dict):
            yield RawRow(number, flatten(record))
        elif text:
            tally.leave("the line is no JSON object", number)
        line, number = stream.readline(LONGEST_LINE), number + 1
