"""Half a second without data at every 25th step; nothing else is wrong."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch

STALL_S = 0.5
EVERY_STEPS = 25


class SlowLoader(Fault):
    """The median step time hides it; the mean and the share do not."""

    length: ClassVar[int | None] = 200
    steps: ClassVar[int] = 700

    def batch(self, step: int, loader: Any) -> Batch:
        if self.active(step) and (step - self.onset) % EVERY_STEPS == 0:
            time.sleep(STALL_S)
        drawn: Batch = loader.draw()
        return drawn
