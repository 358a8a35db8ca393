"""Every second update is thrown away: the run goes half as far with every step."""

from __future__ import annotations

from torch import nn

from trainer_hooks.zoo.faults.base import Fault


class SlowProgress(Fault):
    """Gradients vanish after clipping, on odd steps only, which nobody samples."""

    def before_update(self, step: int, model: nn.Module) -> None:
        if self.active(step) and step % 2:
            for parameter in model.parameters():
                parameter.grad = None
