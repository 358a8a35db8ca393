"""Batches that the server will never take, kept for a person to look at, within a bound.

A wrong setting may have every batch refused: the oldest then give way, and how many is written
down beside them. All but the bound is told by the account: their values count as refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

BODY = ".json.gz"
REASON = ".reason.txt"
REMOVED = "removed.json"
REASON_BYTES = 4096
"""What a small file takes on a disk."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What had to give way so far."""

    batches: int = 0
    bytes: int = 0


def keep(folder: Path, name: str, body: bytes, why: str, *, cap_bytes: int) -> Removed:
    """Put a batch there with the reason; the oldest give way. What has given way, in all.

    Of a batch that is larger than the bound only the reason is kept.

    Raises:
        OSError: the disk refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}{REASON}").write_text(why + "\n", encoding="utf-8")
    lost = Removed(1, len(body)) if len(body) + REASON_BYTES > cap_bytes else Removed()
    if not lost.batches:
        (folder / f"{name}{BODY}").write_bytes(body)
    return _note(folder, [lost, *_make_room(folder, cap_bytes)])


def _make_room(folder: Path, cap_bytes: int) -> list[Removed]:
    """Remove the oldest until the rest keeps to the bound."""
    reasons = [(path.stat().st_mtime_ns, path.name, path) for path in folder.glob(f"*{REASON}")]
    kept = [path for _, _, path in sorted(reasons)]
    sizes = {path: _body(path).stat().st_size if _body(path).exists() else 0 for path in kept}
    total = sum(sizes.values()) + REASON_BYTES * len(kept)
    lost = []
    for path in kept[:-1]:
        if total <= cap_bytes:
            break
        total -= sizes[path] + REASON_BYTES
        _body(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        lost.append(Removed(1 if sizes[path] else 0, sizes[path]))
    return lost


def _body(reason: Path) -> Path:
    return reason.with_name(reason.name.removesuffix(REASON) + BODY)


def removed(folder: Path) -> Removed:
    """What has given way in a folder."""
    try:
        plain = json.loads((folder / REMOVED).read_text(encoding="utf-8"))
        return Removed(int(plain["batches"]), int(plain["bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Removed()


def _note(folder: Path, lost: list[Removed]) -> Removed:
    before = removed(folder)
    found = Removed(
        before.batches + sum(part.batches for part in lost),
        before.bytes + sum(part.bytes for part in lost),
    )
    if found != before:
        (folder / REMOVED).write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found
