"""Which checkpoints lie in a folder, and which of them are whole.

A checkpoint is whole when a marker says so, or when neither size nor time of anything in it has
changed for a while. Names that writers use until they are done are passed over.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

SETTLE_S = 10.0
MAX_FILES = 10_000
SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".gguf", ".npz"})
MARKERS = (".complete", ".done", "COMPLETE", "_SUCCESS", ".metadata.complete")

_UNFINISHED = re.compile(
    r"^[.~_]|^tmp|\.(tmp|part|partial|incomplete|temp|lock)$|[.-]tmp[.-]|-tmp-|\.crdownload$"
)
_STEP = re.compile(r"(?:step|iter|checkpoint|global_step)s?[-_=]?0*(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint, file or folder. ``modified_at`` (UTC) is when its weights were current."""

    path: Path
    step: int
    modified_at: float


@dataclass(frozen=True, slots=True)
class _Look:
    """Files, bytes and newest time (ns), and the monotonic time at which they were first so."""

    print: tuple[int, int, int]
    since_s: float


class Folder:
    """A folder in which checkpoints appear.

    Args:
        match: only names like this (``step-*.pt``); without it folders and weight files with a
            number in their names.
        settle_s: how long a checkpoint without a marker has to lie unchanged.
    """

    def __init__(
        self,
        path: Path,
        *,
        match: str | None = None,
        settle_s: float = SETTLE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._match = match
        self._settle_s = settle_s
        self._monotonic = monotonic
        self._looks: dict[Path, _Look] = {}

    def ready(self) -> list[Checkpoint]:
        """Those that are whole, by rising step. A folder that is not there yet holds none."""
        found: list[Checkpoint] = []
        for path in self._candidates():
            step = step_of(path.name)
            if step is not None and self._is_whole(path):
                newest_ns = self._looks[path].print[2]
                found.append(Checkpoint(path, step, newest_ns / 1e9))
        return sorted(found, key=lambda one: (one.step, one.path.name))

    @property
    def waits(self) -> list[Path]:
        """Those that were not whole at the last look."""
        return [path for path in self._candidates() if not self._is_settled(path)]

    def _candidates(self) -> Iterator[Path]:
        try:
            paths = sorted(self._path.iterdir())
        except OSError:
            return
        yield from (path for path in paths if self._is_one(path))

    def _is_one(self, path: Path) -> bool:
        if path.is_symlink() or _UNFINISHED.search(path.name) or path.name.endswith(MARKERS):
            return False
        if self._match is not None:
            return fnmatch(path.name, self._match)
        return path.is_dir() or path.suffix.lower() in SUFFIXES

    def _is_whole(self, path: Path) -> bool:
        """Take a look; whole by a marker, or unchanged since long enough."""
        try:
            seen = _fingerprint(path)
        except OSError:  # it is being moved about
            self._looks.pop(path, None)
            return False
        old = self._looks.get(path)
        now_s = self._monotonic()
        if old is None or old.print != seen:
            self._looks[path] = _Look(seen, now_s)
        if seen[0] == 0 or seen[1] == 0:
            return False
        return _is_marked(path) or self._is_settled(path)

    def _is_settled(self, path: Path) -> bool:
        look = self._looks.get(path)
        return look is not None and self._monotonic() - look.since_s >= self._settle_s


def step_of(name: str) -> int | None:
    """The step a name tells: behind ``step``, ``iter`` or ``checkpoint``, else the last number."""
    said = _STEP.search(name)
    if said:
        return int(said.group(1))
    numbers = _NUMBER.findall(name)
    return int(numbers[-1]) if numbers else None


def _is_marked(path: Path) -> bool:
    if path.is_dir():
        return any((path / marker).exists() for marker in MARKERS)
    beside = (path.with_name(path.name + marker) for marker in MARKERS[:2])
    return any(marker.exists() for marker in beside)


def _fingerprint(path: Path) -> tuple[int, int, int]:
    """How many files, how many bytes, and the newest time (ns), markers left out.

    An unfinished file within a folder makes it one that changes all the time.
    """
    if not path.is_dir():
        stat = path.stat()
        return 1, stat.st_size, stat.st_mtime_ns
    count = size = newest = 0
    for inner in path.rglob("*"):
        if inner.is_dir() or inner.name in MARKERS:
            continue
        stat = inner.stat()
        count, size = count + 1, size + stat.st_size
        newest = max(newest, stat.st_mtime_ns)
        if _UNFINISHED.search(inner.name):
            return 0, 0, newest
        if count >= MAX_FILES:
            break
    return count, size, newest
