"""The clock, as a value that is handed in. Whoever needs the time takes a ``Clock``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
"""Seconds: since 1970 UTC for the wall clock, since anything for the monotonic one."""


def wall_s() -> float:
    """Seconds since 1970-01-01 UTC, now."""
    return time.time()


def monotonic_s() -> float:
    """Seconds of a clock that never jumps; only differences mean anything."""
    return time.monotonic()


@dataclass(slots=True)
class FakeClock:
    """A clock that stands still until it is told to go on; for tests and for replays."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move the hands forward (or, with a negative number, back)."""
        self.now_s += seconds
