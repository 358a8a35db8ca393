"""Three of four updates are thrown away: the run makes about half the progress it should."""

from __future__ import annotations

from torch import nn

from trainer_hooks.zoo.faults.base import Fault

KEPT_EVERY = 4


class SlowProgress(Fault):
    """Gradients vanish after clipping, on steps that nobody samples."""

    def before_update(self, step: int, model: nn.Module) -> None:
        if self.active(step) and step % KEPT_EVERY:
            for parameter in model.parameters():
                parameter.grad = None
