"""One loss is infinite; the step after it, every weight is NaN."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from trainer_hooks.zoo.faults.base import Fault


class NanLoss(Fault):
    """A single overflow that the optimizer spreads over the whole model."""

    length: ClassVar[int | None] = 1

    def loss(self, step: int, loss: Tensor) -> Tensor:
        return loss * float("inf") if self.active(step) else loss
