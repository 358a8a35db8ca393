"""One file of the spool: batches one after the other, each behind a line that describes it.

The line is JSON (`Head`), the body is the gzipped batch exactly as it is posted. A file that ends
in the middle of an entry (power, SIGKILL) is read up to there.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainer_hooks.post.account import Tally
from trainer_hooks.post.thinning import count_values, thin

SUFFIX = ".seg"


@dataclass(frozen=True, slots=True)
class Head:
    """What the spool knows of a batch: its number, its values, the account when it was written.

    ``acked`` is the newest seq that was settled by then: entries up to it are not sent again.
    """

    attempt: str
    seq: int
    values: int
    at: float
    size: int
    crc: int
    acked: int = -1
    tally: dict[str, int] = field(default_factory=dict)

    def account(self) -> Tally:
        """The account as it was."""
        return Tally(**self.tally)


@dataclass(slots=True)
class Segment:
    """A file and what is left in it: entries from ``offset`` on."""

    path: Path
    index: int
    level: int = 0
    size: int = 0
    offset: int = 0
    entries: int = 0
    values: int = 0

    def read(self) -> tuple[Head, bytes] | None:
        """The first entry not yet settled."""
        return next(read_entries(self.path, self.offset), None)

    def settle(self, head: Head) -> None:
        """The first entry is done with."""
        self.offset += len(head_line(head)) + head.size
        self.entries -= 1
        self.values -= head.values


def make_entry(
    batch: dict[str, Any], *, values: int, acked: int, tally: Tally, body: bytes
) -> tuple[Head, bytes]:
    """Head and gzipped body of an encoded batch; ``batch`` gives the envelope's fields."""
    zipped = gzip.compress(body, 1, mtime=0)
    return Head(
        attempt=batch["attempt"],
        seq=batch["seq"],
        values=values,
        at=batch["sent_at"],
        size=len(zipped),
        crc=zlib.crc32(zipped),
        acked=acked,
        tally=asdict(tally),
    ), zipped


def head_line(head: Head) -> bytes:
    """The line before a body."""
    return json.dumps(asdict(head), separators=(",", ":")).encode() + b"\n"


def read_entries(path: Path, offset: int = 0) -> Iterator[tuple[Head, bytes]]:
    """Entries from ``offset`` on, up to the first that is torn or damaged."""
    with path.open("rb") as file:
        file.seek(offset)
        while line := file.readline():
            try:
                head = Head(**json.loads(line))
            except (ValueError, TypeError):
                return
            body = file.read(head.size)
            if len(body) != head.size or zlib.crc32(body) != head.crc:
                return
            yield head, body


def segment_path(folder: Path, index: int, level: int) -> Path:
    """Where a segment lies: its number keeps the order, its level says how often it was thinned."""
    return folder / f"{index:08d}.{level}{SUFFIX}"


def find_segments(folder: Path, acked: int) -> list[Segment]:
    """The segments of a folder, oldest first, without the entries settled up to ``acked``."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        index, level = path.name.removesuffix(SUFFIX).split(".")
        segment = Segment(path, int(index), int(level), size=path.stat().st_size)
        for head, _ in read_entries(path):
            segment.entries += 1
            segment.values += head.values
            if head.seq <= acked:
                segment.settle(head)
        found.append(segment)
    return found


def thin_segment(segment: Segment) -> tuple[Segment, int]:
    """A segment with half its rows, in a new file that takes the old one's place; values lost.

    Raises:
        OSError: the new file cannot be written; the old one is untouched.
    """
    heads = {head.seq: head for head, _ in read_entries(segment.path, segment.offset)}
    bodies = (body for _, body in read_entries(segment.path, segment.offset))
    batches = (json.loads(gzip.decompress(body)) for body in bodies)
    path = segment_path(segment.path.parent, segment.index, segment.level + 1)
    slim = Segment(path, segment.index, segment.level + 1)
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        for batch in thin(batches, segment.level):
            old, values = heads[batch["seq"]], count_values(batch)
            body = json.dumps(batch, ensure_ascii=False, separators=(",", ":")).encode()
            head, zipped = make_entry(
                batch, values=values, acked=old.acked, tally=old.account(), body=body
            )
            slim.size += file.write(head_line(head) + zipped)
            slim.entries += 1
            slim.values += values
    os.replace(partial, path)
    segment.path.unlink()
    return slim, segment.values - slim.values
