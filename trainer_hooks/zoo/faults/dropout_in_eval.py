"""Evaluation in training mode: dropout stays on, and the held-out loss is worse than it is."""

from __future__ import annotations

from torch import nn

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.model import TinyGPT

DROPOUT = 0.2


class DropoutInEval(Fault):
    """The model trains with dropout throughout; from the onset on nobody switches it off."""

    def model(self) -> nn.Module:
        return TinyGPT(dropout=DROPOUT)

    def evaluates_in_training_mode(self, step: int) -> bool:
        return self.active(step)
