"""Where a model's queries and keys are seen, for the largest attention logit of each layer.

Shapes: B rows, T time, H query heads, G key heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

QUERIES = (r"q_(?:layer)?norm|q_ln|query_norm", r"q_proj|to_q|w?q|query|c_q")
KEYS = (r"k_(?:layer)?norm|k_ln|key_norm", r"k_proj|to_k|w?k|key|c_k")
FUSED = r"c_attn|qkv_proj|qkv|wqkv"
TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Attention:
    """How the attention layers are looked into; ``Attention(heads=12)`` fits most models.

    Modules are found by the last part of their names, a norm of queries before their projection,
    since it is the later one that enters the product. Where queries and keys come out of no module
    of their own, ``read`` gives them.

    Args:
        heads: query heads of a layer. Not needed with ``read``.
        kv_heads: key heads of a fused projection, where there are fewer of them.
        queries, keys: a pattern that the last part of a module's name matches in full.
        fused: the same for one projection that gives queries, keys and values, in this order.
        scale: what the product is multiplied by: 1/sqrt(D) unless given. Under muP it is 1/D.
        exact: whether what is seen is what enters the product. It is not where rotary positions
            come after it: then the bound max |q| |k| is told, which no rotation changes.
        is_causal: whether a position sees only itself and those before it.
        tokens: at most so many of the probe's first row are looked at.
        read: ``read(model, inputs_BT)`` -> name of a layer -> (q [B, H, T, D], k [B, G, T, D]).
        layers: the names that ``read`` gives, so that their series are described.
    """

    heads: int | None = None
    kv_heads: int | None = None
    queries: str | None = None
    keys: str | None = None
    fused: str = FUSED
    scale: float | None = None
    exact: bool = False
    is_causal: bool = True
    tokens: int = TOKENS
    read: Callable[[Any, Any], Mapping[str, tuple[Any, Any]]] | None = None
    layers: Sequence[str] = ()
