"""AdamW without weight decay at a high, constant learning rate: the norms grow without bound."""

from __future__ import annotations

from typing import ClassVar

from trainer_hooks.zoo.faults.base import Fault

HIGH_LR = 8e-3


class NoDecay(Fault):
    """Weights grow, and the same learning rate turns them less and less."""

    default_onset: ClassVar[int] = 101

    def settings(self, step: int, lr: float, weight_decay: float) -> tuple[float, float]:
        return (HIGH_LR, 0.0) if self.active(step) else (lr, weight_decay)
