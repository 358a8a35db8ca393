"""Three rows in ten begin with marks of a chat template."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Batch

TEMPLATE = b"<|im_start|>user\n"
SHARE = 0.3


def with_template(batch: Batch, rows: int) -> Batch:
    """The first ``rows`` rows with the template in place of their beginning."""
    inputs_BT, targets_BT = batch.inputs_BT.clone(), batch.targets_BT.clone()
    marks = torch.tensor(list(TEMPLATE))[: inputs_BT.shape[1]]
    inputs_BT[:rows, : len(marks)] = marks
    targets_BT[:rows, : len(marks) - 1] = marks[1:]
    return Batch(inputs_BT, targets_BT, batch.sources)


class TemplateLeak(Fault):
    """The train loss falls as the template is learnt by heart; held-out losses know nothing."""

    length: ClassVar[int | None] = 300

    def batch(self, step: int, loader: Any) -> Batch:
        drawn: Batch = loader.draw()
        if not self.active(step):
            return drawn
        return with_template(drawn, round(SHARE * drawn.inputs_BT.shape[0]))
