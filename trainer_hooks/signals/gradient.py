"""Gradient norm by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.signals.base import AsleepError, Signal, Subject
from trainer_hooks.signals.groups import by_group
from trainer_hooks.signals.norms import joint, tensor_norms
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured


class Gradient(Signal):
    """L2 norms right before the optimizer uses the gradients, so after clipping.

    Clipping scales all gradients alike: where the loop gives the total from before clipping
    (``step(grad_norm=...)``), the watch puts it into ``subject.extras["grad_norm"]`` and the
    groups are scaled back to before clipping as well.
    """

    name: ClassVar[str] = "gradient"

    def __init__(self, subject: Subject) -> None:
        trainable = [p for p in subject.parameters if p.tensor.requires_grad]
        self._groups = by_group(trainable)
        self._extras = subject.extras
        self._norms: dict[str, torch.Tensor] = {}
        if not self._groups:
            raise AsleepError("a parameter that requires a gradient", "watch(model, optimizer)")

    def specs(self) -> list[SeriesSpec]:
        return [
            SeriesSpec(
                key=series_key("grad_norm", group),
                name="grad_norm",
                group=group,
                family="gradient",
                help="L2 norm of the gradient, before clipping where the total was given",
            )
            for group in self._groups
        ]

    def before_update(self, step: int) -> None:
        self._norms = {}
        for group, parameters in self._groups.items():
            grads = [p.tensor.grad for p in parameters if p.tensor.grad is not None]
            if grads:
                self._norms[group] = joint(tensor_norms(grads))

    def measure(self, step: int) -> Measured:
        norms, self._norms = self._norms, {}
        if not norms:
            return {}
        scale = self._unclip(self._extras.get("grad_norm"), list(norms.values()))
        return {series_key("grad_norm", group): norm * scale for group, norm in norms.items()}

    def _unclip(self, given: Any, norms: list[torch.Tensor]) -> torch.Tensor | float:
        """What the gradients were divided by; 1 where that cannot be told."""
        if given is None:
            return 1.0
        device = norms[0].device
        total = joint(torch.stack([norm.to(device) for norm in norms]))
        before = torch.as_tensor(given, device=device).detach().double().reshape(())
        scale = before / total
        return torch.where(scale.isfinite() & (scale > 0), scale, torch.ones_like(scale))
