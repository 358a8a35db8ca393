"""A resume that loads an older checkpoint than it says, and no state of the optimizer."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trainer_hooks.zoo.faults.base import Fault

OLDER_STEPS = 200


class ResumeNoOpt(Fault):
    """The new attempt begins with a loss of long ago."""

    default_onset: ClassVar[int] = 401

    def __init__(self, onset: int, end: int) -> None:
        super().__init__(onset, end)
        self._older: dict[str, Tensor] | None = None

    def resume(self, step: int, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> bool:
        if step == max(1, self.onset - OLDER_STEPS):
            self._older = copy.deepcopy(model.state_dict())
        if step != self.onset:
            return False
        if self._older is not None:
            model.load_state_dict(self._older)
        for optimizer in optimizers:
            forgotten: Any = optimizer.state
            forgotten.clear()
        return True
