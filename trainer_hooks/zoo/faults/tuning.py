"""Controls: fine-tuning a model that knows something already, all of it or by adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_hooks.zoo.corpus import Corpus
from trainer_hooks.zoo.faults.controls import Control
from trainer_hooks.zoo.faults.template_leak import with_template
from trainer_hooks.zoo.loader import MASKED, Batch, Loader, MixedLoader
from trainer_hooks.zoo.rates import PEAK_LR, constant_lr, cosine_lr

if TYPE_CHECKING:
    from trainer_hooks.wire import RunKind

EARLIER_STEPS = 250
TUNING_LR_SHARE = 0.1
RANK = 8


class Tuning(Control):
    """Supervised fine-tuning: every row wears the template, and only what follows it counts."""

    kind: ClassVar[RunKind] = "sft"
    steps: ClassVar[int] = 600

    def prepare(self, model: nn.Module, loader: Any) -> None:
        """The model's earlier life: a short training of its own."""
        optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95))
        for step in range(1, EARLIER_STEPS + 1):
            batch = loader.draw()
            optimizer.param_groups[0]["lr"] = constant_lr(step, EARLIER_STEPS)
            logits_NV = model(batch.inputs_BT).flatten(0, 1)
            loss = functional.cross_entropy(logits_NV, batch.targets_BT.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def held_out(self, corpus: Corpus, rows: int, seed: int) -> Batch:
        return _dressed(super().held_out(corpus, rows, seed))

    def batch(self, step: int, loader: Loader | MixedLoader) -> Batch:
        return _dressed(loader.draw())

    def rate(self, step: int, steps: int) -> float:
        return cosine_lr(step, steps) * TUNING_LR_SHARE


class LowRank(Tuning):
    """The same by adapters: the base is frozen, and half of what learns begins at zero."""

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for module in [m for m in model.modules() if not isinstance(m, nn.Linear)]:
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear) and name != "lm_head":
                    setattr(module, name, LoraLinear(child))
        learning = [p for p in model.parameters() if p.requires_grad]
        return [torch.optim.AdamW(learning, lr=PEAK_LR, betas=(0.9, 0.95))]

    def rate(self, step: int, steps: int) -> float:
        return cosine_lr(step, steps)


class LoraLinear(nn.Module):
    """A frozen linear layer and its adapter, ``y = x W' + x A' B'``."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + (x @ self.lora_A.T) @ self.lora_B.T
        return out


def _dressed(batch: Batch) -> Batch:
    """All rows with the template; the first half of a row, the question, does not count."""
    rows = batch.inputs_BT.shape[0]
    dressed = with_template(batch, rows)
    dressed.targets_BT[:, : dressed.targets_BT.shape[1] // 2] = MASKED
    return dressed
