"""A small byte-level GPT: 3 layers, width 96, 4 heads, QK-norm; 387,744 parameters.

Shapes: B batch, T time, D width, H heads, K width of a head, V vocabulary (256 bytes).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCAB = 256
CONTEXT = 64
WIDTH = 96
LAYERS = 3
HEADS = 4


class Attention(nn.Module):
    """Causal self-attention; queries and keys are normalised, so that their scale cannot grow."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        batch, time, width = x_BTD.shape
        split = self.qkv_proj(x_BTD).view(batch, time, 3, self.heads, width // self.heads)
        q_BHTK, k_BHTK, v_BHTK = split.permute(2, 0, 3, 1, 4)
        q_BHTK = functional.rms_norm(q_BHTK, q_BHTK.shape[-1:])
        k_BHTK = functional.rms_norm(k_BHTK, k_BHTK.shape[-1:])
        mixed = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, time, width))
        return out


class Block(nn.Module):
    """Attention and a GELU network of four times the width, each behind a norm."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.attn_norm = nn.RMSNorm(width)
        self.attn = Attention(width, heads)
        self.mlp_norm = nn.RMSNorm(width)
        self.up_proj = nn.Linear(width, 4 * width, bias=False)
        self.down_proj = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self._drop(self.attn(self.attn_norm(x_BTD)))
        hidden = functional.gelu(self.up_proj(self.mlp_norm(x_BTD)))
        out: Tensor = x_BTD + self._drop(self.down_proj(hidden))
        return out

    def _drop(self, x_BTD: Tensor) -> Tensor:
        if not self.dropout:
            return x_BTD
        return functional.dropout(x_BTD, self.dropout, self.training)


class TinyGPT(nn.Module):
    """Bytes [B, T] to logits [B, T, 256]."""

    def __init__(self, dropout: float = 0.0, *, width: int = WIDTH, layers: int = LAYERS) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(VOCAB, width)
        self.pos_emb = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, HEADS, dropout) for _ in range(layers))
        self.final_norm = nn.RMSNorm(width)
        self.lm_head = nn.Linear(width, VOCAB, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids_BT: Tensor) -> Tensor:
        places_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        x_BTD = self.tok_emb(ids_BT) + self.pos_emb(places_T)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV: Tensor = self.lm_head(self.final_norm(x_BTD))
        return logits_BTV
