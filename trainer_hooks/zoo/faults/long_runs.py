"""Controls: long runs of a smaller model, cheap enough for false alarms to be counted on.

What makes a run of the zoo slow is its model, not its watch. Here it is 2 layers of width 48 with
batches of 2 rows (83,184 parameters, noisier losses), and probe, weights and evaluations come four
times as rarely: a step costs a fifth. Nothing is wrong with these runs, and nothing repeats:
14,000 steps are a third of the corpus.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from trainer_hooks.zoo.faults.base import WEIGHT_DECAY
from trainer_hooks.zoo.faults.controls import Control
from trainer_hooks.zoo.faults.muon import Muon
from trainer_hooks.zoo.model import TinyGPT
from trainer_hooks.zoo.rates import PEAK_LR, wsd_lr

WIDTH = 48
LAYERS = 2


class LongRun(Control):
    """AdamW and a cosine, as the other runs of the zoo have them."""

    steps: ClassVar[int] = 14_000
    rows: ClassVar[int] = 2
    answers_every: ClassVar[int] = 2_000
    weights_every: ClassVar[int] = 80
    probe_every: ClassVar[int] = 100
    held_out_every: ClassVar[int] = 200

    def model(self) -> nn.Module:
        return TinyGPT(width=WIDTH, layers=LAYERS)

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        return [
            torch.optim.AdamW(
                model.parameters(),
                lr=PEAK_LR,
                betas=(0.9, 0.95),
                weight_decay=WEIGHT_DECAY,
                fused=True,
            )
        ]


class LongStableDecay(LongRun):
    """AdamW at one rate for long, then down."""

    def rate(self, step: int, steps: int) -> float:
        return wsd_lr(step, steps)


class LongMuon(LongRun):
    """Muon for the hidden matrices, and a cosine."""

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        return Muon(self.onset, self.end).optimizers(model)
