"""The middle layer stops learning: somebody froze it for an experiment, and left it so."""

from __future__ import annotations

from typing import Any

from torch import nn

from trainer_hooks.zoo.faults.base import Fault

LAYER = 1


class FrozenLayer(Fault):
    """Losses and accuracies hardly tell; the updates of its tensors are exactly zero."""

    def before_clip(self, step: int, model: nn.Module) -> None:
        blocks: Any = model.blocks
        for parameter in blocks[LAYER].parameters():
            parameter.requires_grad_(not self.active(step))
            if self.active(step):
                parameter.grad = None
