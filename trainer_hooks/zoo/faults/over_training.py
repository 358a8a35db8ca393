"""From the onset on the run sees the same 64 KB only, epoch after epoch."""

from __future__ import annotations

from typing import ClassVar

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch, Loader

SHARD_BYTES = 64 * 1024


class OverTraining(Fault):
    """The model learns its shard by heart and grows surer than it is right."""

    default_onset: ClassVar[int] = 151

    def batch(self, step: int, loader: Loader) -> Batch:
        if step == self.onset:
            loader.narrow(SHARD_BYTES)
        return loader.draw()
