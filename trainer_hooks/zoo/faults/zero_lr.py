"""The learning rate is 0 from a step on: a scheduler that ran out, or was loaded wrongly."""

from __future__ import annotations

from trainer_hooks.zoo.faults.base import Fault


class ZeroLearningRate(Fault):
    """The train loss looks alive, since batches differ; nothing is learnt."""

    def settings(self, step: int, lr: float, weight_decay: float) -> tuple[float, float]:
        return (0.0, weight_decay) if self.active(step) else (lr, weight_decay)
