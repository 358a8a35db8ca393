"""Controls: ordinary ways to train that look odd to a rule. Detectors have to stay quiet."""

from __future__ import annotations

from typing import Any, ClassVar

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import BATCH, Batch
from trainer_hooks.zoo.rates import cosine_lr, wsd_lr


class Control(Fault):
    """Nothing is wrong."""

    is_control: ClassVar[bool] = True


class StableDecay(Control):
    """Warm-up, a long stable stretch, a short linear decay."""

    def rate(self, step: int, steps: int) -> float:
        return wsd_lr(step, steps)


class LrRestart(Control):
    """A cosine that begins again at the peak half-way; losses rise for a while."""

    default_onset: ClassVar[int] = 401

    def rate(self, step: int, steps: int) -> float:
        if step < self.onset:
            return cosine_lr(step, self.onset - 1)
        # Without another warm-up, as warm restarts are.
        return cosine_lr(100 + step - self.onset, 100 + steps - self.onset)


class BatchRamp(Control):
    """Batches of 4, then 8, then 16 rows: losses get less noisy, steps longer."""

    default_onset: ClassVar[int] = 201

    def batch(self, step: int, loader: Any) -> Batch:
        rows = BATCH // 4 if step < self.onset else BATCH // 2 if step < 2 * self.onset else BATCH
        drawn: Batch = loader.draw(rows)
        return drawn
