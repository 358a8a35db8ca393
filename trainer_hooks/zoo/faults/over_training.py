"""From the onset on the run sees the same shard only, epoch after epoch."""

from __future__ import annotations

from typing import ClassVar

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch, Loader


class OverTraining(Fault):
    """The model learns its shard by heart and grows surer than it is right.

    ``shard_bytes``: the smaller it is, the sooner.
    """

    default_onset: ClassVar[int] = 151
    shard_bytes: ClassVar[int] = 64 * 1024

    def batch(self, step: int, loader: Loader) -> Batch:
        if step == self.onset:
            loader.narrow(self.shard_bytes)
        return loader.draw()
