"""Gradient norm by group, and which gradients are not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.signals.base import AsleepError, Subject, SummedSignal
from trainer_hooks.signals.groups import TOTAL, chosen_alone, measurable
from trainer_hooks.signals.norms import Grouping, Shares, tensor_norms
from trainer_hooks.signals.shards import local
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured

BLAMED = 3
HELP = "L2 norm of the gradient, before clipping where the total was given"


class Gradient(SummedSignal):
    """L2 norms right before the optimizer uses the gradients, so after clipping.

    Clipping scales all gradients alike: where the loop gives the total from before clipping
    (``step(grad_norm=...)``), the watch puts it into ``subject.extras["grad_norm"]`` and the
    groups are scaled back to before clipping as well. Parameters that no optimizer has do not
    count: nothing resets their gradient.
    """

    name: ClassVar[str] = "gradient"

    def __init__(self, subject: Subject) -> None:
        trainable = [p for p in measurable(subject.parameters) if p.requires_grad]
        self._parameters = [p for p in trainable if p.owned]
        self._orphans = [p.name for p in trainable if not p.owned]
        self._extras = subject.extras
        self._world = subject.world
        if not self._parameters:
            raise AsleepError("a parameter that requires a gradient", "watch(model, optimizer)")
        self._groups = Grouping([p.group for p in self._parameters])
        self._shares = Shares([p.tensor for p in self._parameters], self._world)
        self._alone = chosen_alone([p.name for p in self._parameters], subject)
        self.width = len(self._parameters)
        self._there: set[int] = set()
        self._sums: torch.Tensor | None = None
        self._kept: tuple[int, torch.Tensor] | None = None
        self._step = 0

    def specs(self) -> list[SeriesSpec]:
        return [
            SeriesSpec(
                key=series_key("grad_norm", group),
                name="grad_norm",
                group=group,
                family="gradient",
                help=HELP,
            )
            for group in (*self._groups.names, *self._alone.values())
        ]

    def before_update(self, step: int) -> None:
        self._step, self._sums = step, self._take()

    def _take(self) -> torch.Tensor:
        """Squared norms, float64 [parameters]; 0 where there is no gradient."""
        grads = [p.grad for p in self._parameters]
        self._there = {place for place, grad in enumerate(grads) if grad is not None}
        if not self._there:
            return self._nothing()
        norms = tensor_norms([local(grad) for grad in grads if grad is not None])
        if len(self._there) < len(grads):
            found = iter(norms.unbind())
            zero = norms.new_zeros(())
            norms = torch.stack([zero if grad is None else next(found) for grad in grads])
        return self._shares.of(norms.square())

    def _nothing(self) -> torch.Tensor:
        device = local(self._parameters[0].tensor).device
        return torch.zeros(self.width, dtype=torch.float64, device=device)

    def sums(self, step: int) -> torch.Tensor:
        sums, self._sums = self._sums, None
        if sums is None:
            self._there = set()
            return self._nothing()
        return sums

    def conclude(self, sums: torch.Tensor) -> Measured:
        self._kept = (self._step, sums)
        if not self._there:
            return {}
        grouped = self._groups.sums(sums)
        scale = self._unclip(self._extras.get("grad_norm"), grouped.sum().sqrt())
        norms = (grouped.sqrt() * scale).unbind()
        seen = sorted({self._groups.places[place] for place in self._there})
        found: dict[str, torch.Tensor | float] = {
            series_key("grad_norm", self._groups.names[place]): norms[place] for place in seen
        }
        if self._world > 1:  # nobody else can tell: a process only sees its part
            found[series_key("grad_norm", TOTAL)] = grouped.sum().sqrt() * scale
        for place in self._there & self._alone.keys():
            found[series_key("grad_norm", self._alone[place])] = sums[place].sqrt() * scale
        return found

    def measure(self, step: int) -> Measured:
        return {} if self._sums is None else self.conclude(self.sums(step))

    def blame(self, step: int) -> list[str]:
        """Names of the first parameters whose gradient was not finite at a step, if it is known.

        The gradients themselves are looked at where the step's are not kept and still there.
        """
        if self._kept is not None and self._kept[0] == step:
            finite = self._kept[1].isfinite().tolist()
            return [p.name for p, ok in zip(self._parameters, finite, strict=True) if not ok][
                :BLAMED
            ]
        there = [p for p in self._parameters if p.grad is not None]
        if not there or self._world > 1:
            return []
        norms = tensor_norms([grad for p in there if (grad := p.grad) is not None])
        finite = norms.isfinite().tolist()
        return [p.name for p, ok in zip(there, finite, strict=True) if not ok][:BLAMED]

    def notice(self) -> str | None:
        if not self._orphans:
            return None
        shown = ", ".join(self._orphans[:BLAMED])
        return f"trainable, but in no optimizer: {shown} ({len(self._orphans)} in all)"

    def _unclip(self, given: Any, total: torch.Tensor) -> torch.Tensor | float:
        """What the gradients were divided by; 1 where that cannot be told."""
        if given is None:
            return 1.0
        if isinstance(given, torch.Tensor):
            before = given.detach().to(total.device).double().reshape(())
        else:
            before = torch.full_like(total, float(given))
        scale = before / total
        return torch.where(scale.isfinite() & (scale > 0), scale, torch.ones_like(scale))
