"""A GPT of 9 million parameters: what the costs of hooks are measured on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainer_hooks.zoo.model import Block

VOCAB, WIDTH, LAYERS, HEADS = 8192, 256, 6, 8
BATCH, LENGTH = 4, 64


class Gpt(nn.Module):
    """Token ids [B, T] to logits [B, T, 8192]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok_emb = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(LAYERS))
        self.final_norm = nn.RMSNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids_BT: Any) -> Any:
        x_BTD = self.tok_emb(ids_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return self.lm_head(self.final_norm(x_BTD))


class Loop:
    """Forward, backward and AdamW on random tokens; ``step`` gives the loss."""

    def __init__(self) -> None:
        self.model = Gpt()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.ids = torch.randint(VOCAB, (BATCH, LENGTH + 1))

    def backward(self) -> Any:
        """Gradients of one batch; the loss."""
        logits = self.model(self.ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), self.ids[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        return loss

    def step(self) -> Any:
        """One optimizer step; the loss."""
        loss = self.backward()
        self.optimizer.step()
        return loss
