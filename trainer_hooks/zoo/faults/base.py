"""What a fault is: a wrapper round the loader, the optimizer's settings or the loss.

``onset`` is the first step that it touches and ``end`` the last one: the ground truth by which
detectors are judged. Steps count from 1, as the watch counts them.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from trainer_hooks.zoo.loader import Batch, Loader


class Fault:
    """A run without a fault; the faults override what they spoil.

    Class attributes:
        default_onset: the first spoilt step, where nobody chooses one.
        length: how many steps it lasts; None: to the end of the run.
    """

    default_onset: ClassVar[int] = 301
    length: ClassVar[int | None] = None

    def __init__(self, onset: int, end: int) -> None:
        self.onset = onset
        self.end = end

    def active(self, step: int) -> bool:
        """Whether this step is spoilt."""
        return self.onset <= step <= self.end

    def batch(self, step: int, loader: Loader) -> Batch:
        """The batch that this step gets."""
        return loader.draw()

    def settings(self, step: int, lr: float, weight_decay: float) -> tuple[float, float]:
        """Learning rate and weight decay of this step."""
        return lr, weight_decay

    def loss(self, step: int, loss: Tensor) -> Tensor:
        """The loss that is sent backwards."""
        return loss
