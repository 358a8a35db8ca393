"""Accelerate: ``w = watch_accelerate(accelerator, model, optimizer)`` after ``prepare``.

with w:
    for batch in w.data(loader):
        with accelerator.accumulate(model):
            ...
            optimizer.step()
            w.step(loss, batch["input_ids"].numel())
"""

from __future__ import annotations

from typing import Any

from trainer_hooks.loop.inert import InertWatch
from trainer_hooks.watch import Watch, watch


def watch_accelerate(
    accelerator: Any, model: Any, optimizer: Any, **options: Any
) -> AcceleratedWatch:
    """Watch a loop of one's own on Accelerate; model and optimizer as ``prepare`` gave them."""
    inner = getattr(optimizer, "optimizer", optimizer)
    options = {"scaler": getattr(accelerator, "scaler", None)} | options
    return AcceleratedWatch(accelerator, watch(model, inner, **options))


class AcceleratedWatch:
    """A watch whose ``step`` is called for every micro-batch. All else is the watch's own."""

    def __init__(self, accelerator: Any, inner: Watch | InertWatch) -> None:
        self.watch = inner
        self._accelerator = accelerator

    def step(self, loss: Any, tokens: int | None = None, grad_norm: Any = None) -> None:
        """A micro-batch is done, and where gradients were synchronised, the optimizer step.

        Args:
            loss: of this micro-batch, before Accelerate divides it.
            tokens: it was computed on: losses are weighted by them.
            grad_norm: what ``accelerator.clip_grad_norm_`` returned.
        """
        self.watch.micro(loss.detach() if hasattr(loss, "detach") else loss, tokens)
        if self._accelerator.sync_gradients:
            self.watch.step(grad_norm=grad_norm)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.watch, name)

    def __enter__(self) -> AcceleratedWatch:
        return self

    def __exit__(self, *error: Any) -> None:
        self.watch.__exit__(*error)
