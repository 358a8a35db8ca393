"""Weights kept in bfloat16: small updates are rounded away. The rate is low all run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainer_hooks.zoo.faults.base import Fault

LR_SHARE = 0.12


class Bf16Weights(Fault):
    """It looks like a plateau; the share of weights that change at all tells."""

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        made = super().optimizers(model)
        self._steps = 0
        for optimizer in made:
            # Before the watch's own hook: what it sees is what the weights really become.
            optimizer.register_step_post_hook(self._round)
        return made

    def settings(self, step: int, lr: float, weight_decay: float) -> tuple[float, float]:
        return lr * LR_SHARE, weight_decay

    def _round(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._steps += 1
        if not self.active(self._steps):
            return
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.copy_(parameter.bfloat16())
