"""Grokking: addition modulo 67. The run looks stuck for long while it is about to understand.

Trained on 40 % of all pairs with strong decay (Power et al. 2022, arXiv 2201.02177): the train loss
falls, the held-out loss rises and the first guess stays wrong; the rank of the right answer and the
share among the first ten move long before the first guess does.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_hooks.probe import Probe
from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.faults.controls import Control
from trainer_hooks.zoo.run import CLIP_NORM, PRICE_PER_HOUR, MakeWatch, Truth

MODULUS = 67
TRAIN_SHARE = 0.4
BATCH_PAIRS = 512
WIDTH = 64
HIDDEN = 256
LR = 1e-3
DECAY = 2.0
WARMUP_STEPS = 20
PROBE_PAIRS = 2_048
PROBE_EVERY = 25
HELD_OUT_EVERY = 50


class Grokking(Control):
    """Nothing is wrong: it wants patience, and that is what a rule may say, as information."""

    training: ClassVar[str] = "trainer_hooks.zoo.grokking:train"
    steps: ClassVar[int] = 2_500


class Adder(nn.Module):
    """Pairs [B, 2] to logits [B, 1, 67]."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(MODULUS, WIDTH)
        self.up_proj = nn.Linear(2 * WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.lm_head = nn.Linear(WIDTH, MODULUS, bias=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)

    def forward(self, pairs_B2: Tensor) -> Tensor:
        hidden = functional.relu(self.up_proj(self.tok_emb(pairs_B2).flatten(-2)))
        logits: Tensor = self.lm_head(self.down_proj(hidden))
        return logits[:, None]


def all_pairs(seed: int) -> tuple[Tensor, Tensor]:
    """All pairs in a drawn order, [N, 2], and their sums [N, 1]."""
    numbers = torch.arange(MODULUS)
    pairs = torch.cartesian_prod(numbers, numbers)
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))
    return pairs[order], pairs[order].sum(1, keepdim=True) % MODULUS


def train(
    fault: Fault, told: Truth, watch: MakeWatch | None, checkpoints: Path | None
) -> list[float]:
    """Every step's loss."""
    pairs, sums = all_pairs(told.seed)
    cut = int(len(pairs) * TRAIN_SHARE)
    model = Adder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=DECAY)
    w: Any = None
    if watch is not None:
        probe = Probe(pairs[cut:][:PROBE_PAIRS], sums[cut:][:PROBE_PAIRS])
        w = watch(model, optimizer, **_settings(told, probe))
    draw = torch.Generator().manual_seed(told.seed)
    losses = []
    with w or nullcontext():
        for step in range(1, told.steps + 1):
            optimizer.param_groups[0]["lr"] = LR * min(1.0, step / WARMUP_STEPS)
            rows = torch.randint(cut, (BATCH_PAIRS,), generator=draw)
            loss = _loss(model, pairs[rows], sums[rows])
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            losses.append(float(loss.detach()))
            if w is not None:
                w.step(loss=loss, tokens=BATCH_PAIRS, grad_norm=norm)
                if step % HELD_OUT_EVERY == 0:
                    _evaluate(w, model, pairs[cut:], sums[cut:])
    return losses


def _settings(told: Truth, probe: Probe) -> dict[str, Any]:
    return {
        "probe": probe,
        "planned_steps": told.steps,
        "price_per_hour": PRICE_PER_HOUR,
        "clip_norm": CLIP_NORM,
        "declared_epochs": 1e3,
        "config": {"lr": LR, "weight_decay": DECAY, "task": f"addition modulo {MODULUS}"},
        "seeds": {"torch": told.seed},
        "every": {"weights": PROBE_EVERY, "probe": PROBE_EVERY},
    }


def _loss(model: nn.Module, pairs_B2: Tensor, sums_B1: Tensor) -> Tensor:
    return functional.cross_entropy(model(pairs_B2).flatten(0, 1), sums_B1.flatten())


def _evaluate(w: Any, model: nn.Module, pairs: Tensor, sums: Tensor) -> None:
    with w.phase("evaluation"), torch.no_grad():
        w.log_heldout(_loss(model, pairs, sums))
