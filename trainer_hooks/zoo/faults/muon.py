"""Controls: optimizers that turn matrices by a fixed amount, whatever the gradient's size."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainer_hooks.zoo.faults.controls import Control
from trainer_hooks.zoo.rates import PEAK_LR

MUON_LR_SCALE = 8.0


class MuonH(torch.optim.Muon):
    """Muon whose matrices keep the norm they began with (arXiv 2606.16899)."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        matrices = [p for group in self.param_groups for p in group["params"]]
        self._norms = [(p, p.detach().norm().item()) for p in matrices]
        self.register_step_post_hook(self._project)

    @torch.no_grad()
    def _project(self, *_call: Any) -> None:
        for parameter, norm in self._norms:
            parameter.mul_(norm / parameter.norm())


class Muon(Control):
    """Muon for the hidden matrices, AdamW for all else."""

    optimizer: type[torch.optim.Muon] = torch.optim.Muon
    decay_scale = 1.0

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        named = dict(model.named_parameters())
        hidden = [p for n, p in named.items() if n.startswith("blocks") and p.ndim == 2]
        ids = {id(p) for p in hidden}
        rest = [p for p in named.values() if id(p) not in ids]
        group = {
            "params": hidden,
            "lr_scale": MUON_LR_SCALE,
            "decay_scale": self.decay_scale,
        }
        return [
            self.optimizer([group], lr=PEAK_LR * MUON_LR_SCALE),
            torch.optim.AdamW(rest, lr=PEAK_LR, betas=(0.9, 0.95)),
        ]


class HyperMuon(Muon):
    """Its norm never moves, and the rate alone sets how far a matrix turns."""

    optimizer = MuonH
    decay_scale = 0.0
