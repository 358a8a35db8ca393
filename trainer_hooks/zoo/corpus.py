"""Text every Python has: the sources of its own standard library, read from disk.

A document is one source file. The last part of the documents, in an order that has nothing to do
with their names, is held out as a whole: no document is in both parts.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

END_OF_TEXT = 0
"""The byte between documents; it occurs in none of them."""

HELD_OUT_SHARE = 0.2
MAX_TRAIN_BYTES = 6_000_000
_MIN_DOCUMENT_BYTES = 1_024
_LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "encodings",  # tables, not text: one of them looks like the next
    "pydoc_data",
    "__pycache__",
}


@dataclass(frozen=True, slots=True)
class Corpus:
    """Training and held-out documents, each the bytes of one source file."""

    train: tuple[bytes, ...]
    held_out: tuple[bytes, ...]


@lru_cache(maxsize=1)
def standard_library() -> Corpus:
    """Read the corpus. The same Python gives the same documents in the same order.

    Raises:
        FileNotFoundError: this Python has come without its sources.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    found = [path for path in root.rglob("*.py") if not _LEFT_OUT & set(path.parts)]
    ordered = sorted(found, key=lambda path: _mix(path.relative_to(root).as_posix()))
    documents = list(dict.fromkeys(filter(_is_text, (path.read_bytes() for path in ordered))))
    if len(documents) < 100:
        raise FileNotFoundError(f"no standard library sources to train on under {root}")
    cut = int(len(documents) * (1 - HELD_OUT_SHARE))
    return Corpus(train=_up_to(documents[:cut], MAX_TRAIN_BYTES), held_out=tuple(documents[cut:]))


def _mix(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _is_text(document: bytes) -> bool:
    return len(document) >= _MIN_DOCUMENT_BYTES and END_OF_TEXT not in document


def _up_to(documents: list[bytes], limit_bytes: int) -> tuple[bytes, ...]:
    """Whole documents from the front, until the limit is reached."""
    taken: list[bytes] = []
    total = 0
    for document in documents:
        if total >= limit_bytes:
            break
        taken.append(document)
        total += len(document)
    return tuple(taken)
