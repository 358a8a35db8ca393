"""Weight norm and weight RMS, by group, in total, and for single parameters where asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch

from trainer_hooks.signals.base import AsleepError, Subject, SummedSignal
from trainer_hooks.signals.effective import Effective, effective_weights
from trainer_hooks.signals.groups import TOTAL, chosen_alone, measurable
from trainer_hooks.signals.norms import Grouping, Shares, tensor_norms
from trainer_hooks.signals.shards import local
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured


class Weights(SummedSignal):
    """``||W|| = sqrt(sum w^2)`` and ``||W|| / sqrt(n)``, which is comparable across widths.

    Where a weight is made of others (weight norm, spectral norm), the group counts the weight
    that is used, and those it is made of can be seen alone.
    """

    name: ClassVar[str] = "weights"

    def __init__(self, subject: Subject) -> None:
        self._parameters = measurable(subject.parameters)
        if not self._parameters:
            raise AsleepError("a model with parameters", "watch(model, optimizer)")
        self._world = subject.world
        self._extras = subject.extras
        own = subject.extras.get("groups") or {}
        self._made: list[Effective] = []
        if self._world == 1:
            self._made = effective_weights(subject.model, own)
        parts = {part for made in self._made for part in made.parts}
        names = [p.name for p in self._parameters] + [m.name for m in self._made]
        sizes = [p.tensor.numel() for p in self._parameters] + [m.size for m in self._made]
        groups = ["" if p.name in parts else p.group for p in self._parameters]
        self._groups = Grouping(groups + [m.group for m in self._made])
        self._shares = Shares([p.tensor for p in self._parameters], self._world)
        self._sizes = [
            sum(n for n, p in zip(sizes, self._groups.places, strict=True) if p == g)
            for g in range(len(self._groups.names))
        ]
        self._alone = chosen_alone(names, subject)
        self._skipped = len(subject.parameters) - len(self._parameters)
        self.width = len(names)

    def specs(self) -> list[SeriesSpec]:
        names = self._groups.names
        found = [_spec("weight_norm", g, "L2 norm of the weights") for g in (*names, TOTAL)]
        found += [_spec("weight_rms", g, "root mean square of the weights") for g in names]
        return found + [
            _spec("weight_norm", name, "L2 norm of one parameter") for name in self._alone.values()
        ]

    def sums(self, step: int) -> torch.Tensor:
        norms = self._norms(step)
        squares = self._shares.of(norms.square())
        if not self._made:
            return squares
        made = tensor_norms([m.compute() for m in self._made])
        return torch.cat([squares, made.square().to(squares.device)])

    def _norms(self, step: int) -> torch.Tensor:
        """Of every parameter; those that the update's comparison has just found are not taken
        again."""
        at, places, known = self._extras.pop("norms_after", (None, {}, None))
        if at != step or known is None:
            return tensor_norms([local(p.tensor) for p in self._parameters])
        missing = [p.tensor for p in self._parameters if p.name not in places]
        rest = iter(tensor_norms(missing).to(known.device).unbind()) if missing else iter(())
        parts = known.unbind()
        return torch.stack([
            parts[places[p.name]] if p.name in places else next(rest)
            for p in self._parameters
        ])  # fmt: skip

    def conclude(self, sums: torch.Tensor) -> Measured:
        grouped = self._groups.sums(sums)
        norms = grouped.sqrt().unbind()
        found: dict[str, torch.Tensor | float] = {
            series_key("weight_norm", TOTAL): grouped.sum().sqrt()
        }
        for group, count, norm in zip(self._groups.names, self._sizes, norms, strict=True):
            found[series_key("weight_norm", group)] = norm
            found[series_key("weight_rms", group)] = norm / math.sqrt(count)
        for place, name in self._alone.items():
            found[series_key("weight_norm", name)] = sums[place].sqrt()
        return found

    def notice(self) -> str | None:
        if not self._skipped:
            return None
        return f"{self._skipped} parameters of integers, or without elements, are not measured"


def _spec(name: str, group: str, text: str) -> SeriesSpec:
    return SeriesSpec(
        key=series_key(name, group), name=name, group=group, family="weights", help=text
    )
