"""A resume after which the learning rate is ten times what the schedule says."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from trainer_hooks.zoo.faults.base import Fault

FACTOR = 10.0


class LrTimesTen(Fault):
    """A scaled rate that was scaled once more when the run came back."""

    default_onset: ClassVar[int] = 401
    steps: ClassVar[int] = 700

    def settings(self, step: int, lr: float, weight_decay: float) -> tuple[float, float]:
        return (lr * FACTOR, weight_decay) if self.active(step) else (lr, weight_decay)

    def resume(self, step: int, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> bool:
        return step == self.onset
