"""What the kernel knows of this process and its machine (Linux; elsewhere less is told)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trainer_hooks.wire import SeriesSpec

PRESSURES = ("cpu", "memory", "io")


def rss_bytes(status: Path = Path("/proc/self/statm")) -> float | None:
    """Resident memory of this process in bytes."""
    try:
        return float(int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None


def disk_free_bytes(folder: Path) -> float | None:
    """Free bytes where ``folder`` lies, or will lie."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return float(shutil.disk_usage(folder).free)
    except OSError:
        return None


def pressure(what: str, root: Path = Path("/proc/pressure")) -> float | None:
    """Share (0 to 1) of the last 10 s in which some task waited for ``what``."""
    try:
        line = (root / what).read_text().splitlines()[0]
        words = dict(word.split("=") for word in line.split()[1:])
        return float(words["avg10"]) / 100
    except (OSError, ValueError, IndexError, KeyError):
        return None


def read_machine(folder: Path) -> dict[str, float]:
    """All of the above under their series' keys; what cannot be told is left out."""
    found = {"process_rss_bytes": rss_bytes(), "disk_free_bytes": disk_free_bytes(folder)}
    found |= {f"pressure_{what}": pressure(what) for what in PRESSURES}
    return {key: value for key, value in found.items() if value is not None}


def specs() -> list[SeriesSpec]:
    """What they are."""
    texts = {
        "process_rss_bytes": ("byte", "resident memory of the training process"),
        "disk_free_bytes": ("byte", "free space where the spool lies"),
        "pressure_cpu": ("", "share of the last 10 s in which a task waited for a processor"),
        "pressure_memory": ("", "share of the last 10 s in which a task waited for memory"),
        "pressure_io": ("", "share of the last 10 s in which a task waited for disk or network"),
    }
    return [
        SeriesSpec(key, key, unit=unit, family="other", help=text)
        for key, (unit, text) in texts.items()
    ]
