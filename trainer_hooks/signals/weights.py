"""Weight norm and weight RMS, by group and in total."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch

from trainer_hooks.signals.base import AsleepError, Signal, Subject
from trainer_hooks.signals.groups import TOTAL, by_group
from trainer_hooks.signals.norms import joint, tensor_norms
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured


class Weights(Signal):
    """``||W|| = sqrt(sum w^2)`` and ``||W|| / sqrt(n)``, which is comparable across widths."""

    name: ClassVar[str] = "weights"

    def __init__(self, subject: Subject) -> None:
        self._groups = by_group(subject.parameters)
        if not self._groups:
            raise AsleepError("a model with parameters", "watch(model, optimizer)")

    def specs(self) -> list[SeriesSpec]:
        found = [_spec("weight_norm", g, "L2 norm of the weights") for g in (*self._groups, TOTAL)]
        return found + [
            _spec("weight_rms", g, "root mean square of the weights") for g in self._groups
        ]

    def measure(self, step: int) -> Measured:
        found: dict[str, torch.Tensor | float] = {}
        norms = []
        for group, parameters in self._groups.items():
            norm = joint(tensor_norms([p.tensor for p in parameters]))
            count = sum(p.tensor.numel() for p in parameters)
            found[series_key("weight_norm", group)] = norm
            found[series_key("weight_rms", group)] = norm / math.sqrt(count)
            norms.append(norm)
        device = norms[0].device
        found[series_key("weight_norm", TOTAL)] = joint(torch.stack([n.to(device) for n in norms]))
        return found


def _spec(name: str, group: str, text: str) -> SeriesSpec:
    return SeriesSpec(
        key=series_key(name, group), name=name, group=group, family="weights", help=text
    )
