"""Batches on disk until the server holds them: append, read the oldest, settle it.

One folder per process, ``<root>/<run>/<source>/``, locked by its pid; segments are append files.
Every batch is written here before it is first posted, so a SIGKILL loses one flush interval at
most. Above the cap the segments that were never attempted are thinned, oldest and finest first.
If the disk fails, a small memory takes over until it works again. Never used on the training
thread: the lock in here may be held during disk I/O.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import shutil
import threading
from collections import deque
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

from trainer_hooks.post.account import Tally
from trainer_hooks.post.refused import keep
from trainer_hooks.post.segment import (
    Head,
    Segment,
    find_segments,
    head_line,
    read_entries,
    segment_path,
    thin_segment,
)
from trainer_hooks.post.thinning import RECORDS_ONLY_LEVEL

log = logging.getLogger("trainer_hooks")

CAP_BYTES = 256 * 1024 * 1024
SEGMENT_BYTES = 1024 * 1024
MEMORY_BYTES = 8 * 1024 * 1024
REFUSED_SHARE = 8
"""Refused batches may take an eighth of the spool's size beside it: 32 MiB."""
_held: set[Path] = set()  # locks of fcntl do not exclude their own process


class SpoolBusyError(Exception):
    """Another process (or this one) uses this folder."""


class Spool:
    """The batches of one source, oldest first. Create with ``Spool.create`` or ``Spool.reopen``."""

    def __init__(self, folder: Path, *, cap_bytes: int = CAP_BYTES) -> None:
        self.folder = folder
        self.cap_bytes = cap_bytes
        self.segment_bytes = min(SEGMENT_BYTES, max(cap_bytes // 8, 4096))
        self.acked = -1
        self.meta: dict[str, Any] = {}
        self.problem = ""
        self.refused_gone = 0
        self._lock = threading.Lock()
        self._segments: deque[Segment] = deque()
        self._memory: deque[tuple[Head, bytes]] = deque()
        self._memory_bytes = 0
        self._file: FileIO | None = None
        self._pid_file: IO[str] | None = None
        self._next_index = 0
        self._attempted = False
        self._lost = 0

    @classmethod
    def create(cls, folder: Path, meta: dict[str, Any], *, cap_bytes: int = CAP_BYTES) -> Spool:
        """A new folder, or, where the disk refuses, a spool that holds a little in memory."""
        spool = cls(folder, cap_bytes=cap_bytes)
        spool.meta = meta
        try:
            spool._make_folder()
        except OSError as error:
            spool.problem = str(error)
        return spool

    @classmethod
    def reopen(cls, folder: Path) -> tuple[Spool, Tally]:
        """What another process left, with its account brought up to what lies there.

        Raises:
            SpoolBusyError: its process lives.
            OSError: the folder cannot be read.
        """
        spool = cls(folder)
        spool._take_lock()
        try:
            return spool, spool._recover()
        except BaseException:
            spool.release()
            raise

    @property
    def size(self) -> int:
        """Bytes on disk and in the small memory."""
        return sum(s.size for s in self._segments) + self._memory_bytes

    @property
    def is_empty(self) -> bool:
        """Whether everything is settled."""
        with self._lock:
            return not self._memory and not any(s.entries for s in self._segments)

    def has_room(self) -> bool:
        """False while the disk fails and the small memory is full."""
        with self._lock:
            self._flush_memory()
            return self._memory_bytes < MEMORY_BYTES

    def starts_segment(self) -> bool:
        """Whether the next batch opens a new segment after others: it shall repeat the specs."""
        return bool(self._segments) and self._segments[-1].size >= self.segment_bytes

    def append(self, head: Head, body: bytes) -> int:
        """Keep a batch. Returns the values that had to be thinned away for it."""
        with self._lock:
            self._memory.append((head, body))
            self._memory_bytes += head.size
            self._flush_memory()
            return self._thin_to_cap()

    def first(self) -> tuple[Head, bytes] | None:
        """The oldest batch, which from now on is immutable."""
        with self._lock:
            while self._segments:
                segment = self._segments[0]
                entry = self._read(segment) if segment.entries else None
                if entry is not None:
                    self._attempted = True
                    return entry
                if segment.entries:
                    self._lose_first()
                elif len(self._segments) > 1:
                    self._drop_first()
                else:
                    break
            return self._memory[0] if self._memory else None

    def take_lost(self) -> int:
        """Values of files that somebody removed or damaged since they were written."""
        with self._lock:
            lost, self._lost = self._lost, 0
            return lost

    def settle(self, head: Head) -> None:
        """The oldest batch is done with: stored, or set aside."""
        with self._lock:
            self.acked = max(self.acked, head.seq)
            self._attempted = False
            if self._memory and self._memory[0][0].seq == head.seq:
                self._memory_bytes -= self._memory.popleft()[0].size
                return
            segment = self._segments[0]
            segment.settle(head)
            if segment.entries <= 0:
                self._empty_first()

    def set_aside(self, head: Head, body: bytes, why: str) -> None:
        """Copy a refused batch, with the reason, to ``<run>/refused``; it is not sent again."""
        name, cap_bytes = f"{self.folder.name}-{head.seq:08d}", self.cap_bytes // REFUSED_SHARE
        try:
            gone = keep(refused_folder(self.folder.parent), name, body, why, cap_bytes=cap_bytes)
        except OSError as error:
            self.problem = str(error)
            return
        if gone.batches > self.refused_gone:
            log.warning(
                "refused batches take more than %d MiB: %d of them are gone",
                cap_bytes >> 20,
                gone.batches,
            )
            self.refused_gone = 2 * gone.batches  # said again when there are twice as many

    def forget(self) -> None:
        """Remove all of it: sent, or its run was deleted."""
        self.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def release(self, tally: Tally | None = None) -> None:
        """Close the files and let the folder go, for the next process to find."""
        # Patience has an end: another thread may hang in a write to a dead disk.
        if not self._lock.acquire(timeout=0.5):
            return
        try:
            self._close_file()
            if tally is not None and self._pid_file is not None:
                self._write_cursor(tally)
            if self._pid_file is not None:
                self._pid_file.close()
                self._pid_file = None
                _held.discard(self.folder)
        finally:
            self._lock.release()

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        (self.folder / "meta.json").write_text(json.dumps(self.meta), encoding="utf-8")

    def _take_lock(self) -> None:
        if self.folder in _held:
            raise SpoolBusyError(str(self.folder))
        file = (self.folder / "pid").open("a+", encoding="ascii")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise SpoolBusyError(str(self.folder)) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._pid_file = file
        _held.add(self.folder)

    def _recover(self) -> Tally:
        self.meta = json.loads((self.folder / "meta.json").read_text(encoding="utf-8"))
        heads = [h for p in self.folder.glob("*.seg") for h, _ in read_entries(p)]
        last = max(heads, key=lambda h: h.seq, default=None)
        tally = last.account() if last else Tally()
        self.acked = last.acked if last else -1
        cursor = self.folder / "cursor.json"
        if cursor.exists():
            plain = json.loads(cursor.read_text(encoding="utf-8"))
            self.acked, tally = plain["acked"], Tally(**plain["tally"])
        self._segments.extend(find_segments(self.folder, self.acked))
        return self._settle_account(tally)

    def _settle_account(self, tally: Tally) -> Tally:
        """Values that were only in that process's memory went with it; the rest lies here.

        A segment that is gone was settled after the account was last written down.
        """
        tally.move(tally.queued, "queued", "dropped")
        left = sum(s.values for s in self._segments)
        tally.move(tally.spooled - left, "spooled", "stored")
        return tally

    def _write_cursor(self, tally: Tally) -> None:
        plain = {"acked": self.acked, "tally": asdict(tally)}
        try:
            (self.folder / "cursor.json").write_text(json.dumps(plain), encoding="utf-8")
        except OSError as error:
            self.problem = str(error)

    def _flush_memory(self) -> None:
        """Bring what waits in memory to the disk, as far as that works."""
        while self._memory:
            head, body = self._memory[0]
            try:
                self._write(head, body)
            except (OSError, SpoolBusyError) as error:
                self.problem = str(error)
                return
            self._memory.popleft()
            self._memory_bytes -= head.size
            self.problem = ""

    def _write(self, head: Head, body: bytes) -> None:
        if self._pid_file is None:
            self._make_folder()
        if self._file is None or self._segments[-1].size >= self.segment_bytes:
            self._open_segment()
        assert self._file is not None  # noqa: S101 - for the type checker: just opened
        segment = self._segments[-1]
        try:
            size = _write_all(self._file, head_line(head) + body)
        except OSError:
            # A torn entry would hide all that follows it: cut it off, or begin a new segment.
            self._cut_torn(segment)
            raise
        segment.size += size
        segment.entries += 1
        segment.values += head.values

    def _cut_torn(self, segment: Segment) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError:
            pass
        try:
            os.truncate(segment.path, segment.size)
            if segment.size == 0:
                self._segments.pop().path.unlink()
        except OSError as error:
            self.problem = str(error)

    def _open_segment(self) -> None:
        self._close_file()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = segment_path(self.folder, self._next_index, 0)
        # Unbuffered: a forked child must not inherit bytes that it would write a second time.
        self._file = path.open("ab", buffering=0)
        self._segments.append(Segment(path, self._next_index))
        self._next_index += 1

    def _close_file(self) -> None:
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
                self._file.close()
            except OSError as error:
                self.problem = str(error)
            self._file = None

    def _read(self, segment: Segment) -> tuple[Head, bytes] | None:
        try:
            return segment.read()
        except OSError as error:
            self.problem = str(error)
            return None

    def _empty_first(self) -> None:
        """All of the oldest segment is settled: remove it, or begin the open one anew."""
        segment = self._segments[0]
        if len(self._segments) > 1 or self._file is None:
            self._drop_first()
            return
        try:
            self._file.truncate(0)
        except OSError as error:
            self.problem = str(error)
        else:
            segment.size = segment.offset = 0

    def _lose_first(self) -> None:
        """What should lie there does not any more."""
        self._lost += self._segments[0].values
        if len(self._segments) == 1:
            self._close_file()
        self._drop_first()

    def _drop_first(self) -> None:
        self._segments.popleft().path.unlink(missing_ok=True)

    def _thin_to_cap(self) -> int:
        lost = 0
        while self.size > self.cap_bytes:
            candidates = list(self._segments)[1 if self._attempted else 0 : -1]
            if not candidates:
                break
            victim = min(candidates, key=lambda s: (self._worth(s), s.index))
            try:
                lost += self._thin(victim)
            except (OSError, ValueError, KeyError) as error:
                self.problem = str(error)
                break
        return lost

    def _worth(self, segment: Segment) -> float:
        """Old segments give way first: twice the age is worth one more thinning."""
        return segment.level - math.log2(max(1, self._segments[-1].index - segment.index))

    def _thin(self, victim: Segment) -> int:
        place = self._segments.index(victim)
        if victim.level > RECORDS_ONLY_LEVEL:
            del self._segments[place]
            victim.path.unlink(missing_ok=True)
            return victim.values
        slim, lost = thin_segment(victim)
        self._segments[place] = slim
        return lost


def _write_all(file: FileIO, data: bytes) -> int:
    """All of it or an error: a full disk may take the first half."""
    written = file.write(data)
    if written != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return written


def run_folder(root: Path, run: str) -> Path:
    """The folder of a run: its id, with what a file name cannot hold spelled out."""
    return root / quote(run, safe="")


def refused_folder(run: Path) -> Path:
    """Where a run's refused batches are kept."""
    return run / "refused"


def run_of(folder: Path) -> str:
    """The run a source's folder belongs to."""
    return unquote(folder.parent.name)


def find_leftovers(root: Path, run: str | None = None) -> list[Path]:
    """Source folders under a root (of one run, or of all), oldest first, locked or not."""
    runs = [run_folder(root, run)] if run is not None else sorted(root.glob("*"))
    found = [meta.parent for folder in runs for meta in folder.glob("*/meta.json")]
    return sorted(found, key=_written_at)


def _written_at(folder: Path) -> float:
    try:
        return (folder / "meta.json").stat().st_mtime
    except OSError:  # another process has just sent it
        return 0.0
