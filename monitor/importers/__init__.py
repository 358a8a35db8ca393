"""Foreign log formats, pure: from an open binary stream to frames.

One file per format with two functions, ``recognises(head) -> bool`` and ``read(stream, tally) ->
RawLog``, and one line in this table; the first that recognises a file reads it. Third parties
enter by the entry point group ``watchkeeper.importers``.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from monitor.errors import UnreadableLog
from monitor.importers.assemble import assemble
from monitor.importers.base import MAX_INFLATED_BYTES, Tally

if TYPE_CHECKING:
    from monitor.importers.base import Imported

IMPORTERS: dict[str, str] = {
    "tensorboard": "monitor.importers.tensorboard",
    "trainer_state": "monitor.importers.trainer_state",
    "json_lines": "monitor.importers.json_lines",
    "wandb_csv": "monitor.importers.wandb_csv",
    "lightning_csv": "monitor.importers.lightning_csv",
    "csv_table": "monitor.importers.csv_table",
}

ENTRY_POINT_GROUP = "watchkeeper.importers"
HEAD_BYTES = 64 * 1024


@cache
def importer_table() -> dict[str, str]:
    """All formats and their modules; a stranger's are asked first, ours cannot be taken over."""
    foreign = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return {name: place for name, place in foreign.items() if name not in IMPORTERS} | IMPORTERS


def read_log(
    stream: BinaryIO,
    *,
    mapping: Mapping[str, str] | None = None,
    ended_at: float | None = None,
    form: str | None = None,
) -> Imported:
    """Read a training log of any format we know, gzipped or not.

    Args:
        stream: open at the beginning, in binary; read once, forwards.
        mapping: what the columns are, where their names do not tell: series key by column name.
        ended_at: seconds since 1970 (UTC) the run ended, for logs without a calendar; None: they
            begin at 0.
        form: the format's name in the table; None: whichever recognises the file.

    Raises:
        UnreadableLog: no such log, damaged, or nothing in it that can be taken.
    """
    tally = Tally()
    with _named_errors():
        opened = _inflated(_peekable(stream))
        head = opened.peek(HEAD_BYTES)[:HEAD_BYTES]
        name = form or sniff(head)
        module = _module(name)
        raw = module.read(cast(BinaryIO, opened), tally)
        return assemble(name, raw, tally, mapping or {}, ended_at)


def sniff(head: bytes) -> str:
    """The format a file with this beginning has.

    Raises:
        UnreadableLog: none that we know.
    """
    if not head.strip():
        raise UnreadableLog("This file is empty.")
    for name in importer_table():
        if _module(name).recognises(head):
            return name
    raise UnreadableLog(
        "This is no training log we know.", hint=f"Known: {', '.join(importer_table())}."
    )


def _module(name: str) -> Any:
    place = importer_table().get(name)
    if place is None:
        raise UnreadableLog(f"There is no format {name!r}.", hint=", ".join(importer_table()))
    return import_module(place)


def _peekable(stream: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(_Borrowed(stream), HEAD_BYTES)


def _inflated(opened: io.BufferedReader) -> io.BufferedReader:
    if not opened.peek(2).startswith(b"\x1f\x8b"):
        return opened
    inflated = gzip.GzipFile(fileobj=opened)
    return io.BufferedReader(_Borrowed(cast(BinaryIO, inflated), MAX_INFLATED_BYTES), HEAD_BYTES)


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UnreadableLog(f"The gzip file is damaged: {error}.") from None


class _Borrowed(io.RawIOBase):
    """Somebody's stream: never closed here, and an error when it grows beyond all measure."""

    def __init__(self, inner: BinaryIO, limit: int | None = None) -> None:
        super().__init__()
        self._inner, self._left = inner, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise UnreadableLog("The file grows beyond 2 GiB when it is inflated.")
        buffer[: len(data)] = data
        return len(data)
