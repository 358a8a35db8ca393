"""The real server, made to stand still once at a chosen place, so that a test can kill it there.

``python -m tests.faults.fragile_server PLACE MARKER [serve options]``. PLACE is ``seal`` (blocks
are written, the transaction is not committed), ``detection`` (alerts and messages are written, not
committed) or ``nowhere``. When it stands there it creates the file MARKER.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STANDS_STILL_S = 60.0


def _pausing(function: Callable[..., Any], marker: Path) -> Callable[..., Any]:
    def call(*args: Any, **words: Any) -> Any:
        result = function(*args, **words)
        wrote_something = result is None or result
        if wrote_something and not marker.exists():
            marker.touch()
            time.sleep(STANDS_STILL_S)
        return result

    return call


def main(place: str, marker: str, *serve: str) -> int:
    """Patch the one place and serve."""
    from monitor.cli import main as command
    from monitor.services import delivery, detection, gates
    from monitor.storage import blocks

    delivery.LEASE_S = 25.0  # Still longer than a try; a minute after each kill tells no more.
    gates.FOLD_S = 0.0  # The episodes of these tests come seconds apart, and each is to be told.
    if place == "seal":
        blocks.SqlBlocks.add = _pausing(blocks.SqlBlocks.add, Path(marker))  # type: ignore[method-assign]
    elif place == "detection":
        detection.write_effects = _pausing(detection.write_effects, Path(marker))
    return command(["serve", *serve])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
