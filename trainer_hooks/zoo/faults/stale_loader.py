"""The loader stalls once, then serves the batches it had at hand again and again for a while."""

from __future__ import annotations

import time
from typing import ClassVar

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch, Loader

STALL_S = 0.6


class StaleLoader(Fault):
    """Train loss falls faster than ever while the model forgets everything else."""

    length: ClassVar[int | None] = 360

    def __init__(self, onset: int, end: int) -> None:
        super().__init__(onset, end)
        self._held: list[Batch] = []

    def batch(self, step: int, loader: Loader) -> Batch:
        if not self.active(step):
            return loader.draw()
        if not self._held:
            time.sleep(STALL_S)
            self._held = list(loader.recent) or [loader.draw()]
        return self._held[(step - self.onset) % len(self._held)]
