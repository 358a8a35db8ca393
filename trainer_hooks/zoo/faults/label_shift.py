"""Targets that are the inputs: the shift by one was forgotten."""

from __future__ import annotations

from typing import Any, ClassVar

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch


class LabelShift(Fault):
    """The loss is far too good, far too early; the probe, whose targets are right, is not."""

    default_onset: ClassVar[int] = 1
    steps: ClassVar[int] = 400

    def batch(self, step: int, loader: Any) -> Batch:
        drawn: Batch = loader.draw()
        if not self.active(step):
            return drawn
        return Batch(drawn.inputs_BT, drawn.inputs_BT.clone(), drawn.sources)
