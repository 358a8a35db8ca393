"""Three batches of random bytes: the loss leaps, and the run is itself again soon after."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch
from trainer_hooks.zoo.model import VOCAB


class BadBatch(Fault):
    """What a broken shard looks like."""

    length: ClassVar[int | None] = 3
    steps: ClassVar[int] = 500

    def batch(self, step: int, loader: Any) -> Batch:
        drawn: Batch = loader.draw()
        if not self.active(step):
            return drawn
        generator = torch.Generator().manual_seed(step)
        shape = (drawn.inputs_BT.shape[0], drawn.inputs_BT.shape[1] + 1)
        noise = torch.randint(1, VOCAB, shape, generator=generator)
        return Batch(noise[:, :-1].contiguous(), noise[:, 1:].contiguous())
