"""The client's own account, counted in values, under one lock that is only ever held for a moment.

``produced = stored + duplicate + refused + queued + spooled + dropped`` holds at every instant:
a value enters as *produced and queued* and afterwards only ever moves from one box to another.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Literal

Box = Literal["stored", "duplicate", "refused", "queued", "spooled", "dropped"]


@dataclass(slots=True)
class Tally:
    """Numbers of values; ``hook_errors`` counts what was caught before it reached the loop."""

    produced: int = 0
    stored: int = 0
    duplicate: int = 0
    refused: int = 0
    queued: int = 0
    spooled: int = 0
    dropped: int = 0
    hook_errors: int = 0

    def adds_up(self) -> bool:
        """Whether every value produced is in exactly one box."""
        boxes = self.stored + self.duplicate + self.refused
        return self.produced == boxes + self.queued + self.spooled + self.dropped

    def move(self, values: int, source: Box, target: Box) -> None:
        """Values leave one box for another."""
        setattr(self, source, getattr(self, source) - values)
        setattr(self, target, getattr(self, target) + values)


class Account:
    """A ``Tally`` shared by the training thread and the client's own threads."""

    def __init__(self, tally: Tally | None = None) -> None:
        # Re-entrant: a signal handler may interrupt its own thread while that holds it.
        self.lock = threading.RLock()
        self._tally = tally or Tally()

    def produce(self, values: int) -> None:
        """Values enter the memory queue."""
        with self.lock:
            self._tally.produced += values
            self._tally.queued += values

    def move(self, values: int, source: Box, target: Box) -> None:
        """Values leave one box for another."""
        with self.lock:
            self._tally.move(values, source, target)

    def settle(self, values: int, *, duplicate: int, refused: int) -> None:
        """A spooled batch was answered; what is neither repeated nor refused is stored."""
        with self.lock:
            refused = min(max(refused, 0), values)
            duplicate = min(max(duplicate, 0), values - refused)
            self._tally.move(refused, "spooled", "refused")
            self._tally.move(duplicate, "spooled", "duplicate")
            self._tally.move(values - refused - duplicate, "spooled", "stored")

    def count_error(self) -> None:
        """One more exception was caught in a hook."""
        with self.lock:
            self._tally.hook_errors += 1

    def read(self) -> Tally:
        """A consistent copy."""
        with self.lock:
            return replace(self._tally)
