"""Gradient accumulation over two micro-batches without dividing: loss and gradient are doubled."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer_hooks.zoo.faults.base import Fault


class CountedTwice(Fault):
    """After a resume with other settings. Adam hides it from the weights; the loss shows it."""

    default_onset: ClassVar[int] = 401
    steps: ClassVar[int] = 700

    def loss(self, step: int, loss: Tensor) -> Tensor:
        return loss * 2 if self.active(step) else loss

    def resume(self, step: int, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> bool:
        return step == self.onset
