"""The largest attention logit of each layer, from one row of the probe (opt in).

Fused attention kernels give no logits away, so queries and keys are looked at where their own
modules give them, in a forward pass of the probe's first row that is ours alone. The listeners
live as long as that pass: a compiled model keeps its graphs.

Shapes: B rows, T time, H query heads, G key heads, D width of a head.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from trainer_hooks.attention import KEYS, QUERIES, Attention
from trainer_hooks.loop.undisturbed import undisturbed
from trainer_hooks.signals.base import AsleepError, Signal, Subject
from trainer_hooks.signals.groups import clean_name, held_prefixes, unwrapped
from trainer_hooks.signals.probe import TrainingAutocast, probe_on_device, uncompiled
from trainer_hooks.signals.shards import is_sharded
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured

NAME = "attn_logit_max"
WAKE = "watch(..., probe=..., attention=Attention(heads=12))"
WAKE_READ = "Attention(read=lambda model, inputs_BT: {layer: (q_BHTD, k_BGTD)})"
CHUNK = 1 << 24
"""Logits that exist at once: 64 MiB."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An attention layer and the modules that give its queries and keys; one if they are fused."""

    name: str
    queries: nn.Module
    keys: nn.Module


class AttentionLogits(Signal):
    """``attn_logit_max/<layer>``: the largest q.k times the scale in force, or the bound of it."""

    name: ClassVar[str] = "attention"
    cadence: ClassVar[str] = "probe"

    def __init__(self, subject: Subject) -> None:
        given = subject.extras.get("attention")
        if given is None:
            raise AsleepError("where queries and keys are seen (opt in)", WAKE)
        if subject.extras.get("probe") is None:
            raise AsleepError("a fixed held-out batch", WAKE)
        self._given: Attention = given
        self._model = unwrapped(subject.model)
        self._layers = [] if given.read else find_layers(self._model, given)
        if not given.read and (not self._layers or given.heads is None):
            missing = "the number of heads" if self._layers else "modules that give q and k"
            raise AsleepError(missing, WAKE if self._layers else WAKE_READ)
        probe = subject.extras["probe"]
        row = replace(probe, inputs_BT=probe.inputs_BT[:1], targets_BT=probe.targets_BT[:1])
        self._probe = probe_on_device(row, subject.model)
        self._autocast = TrainingAutocast(subject)

    def specs(self) -> list[SeriesSpec]:
        what = "largest attention logit" if self._given.exact else "bound |q| |k| of the logits"
        names = [layer.name for layer in self._layers] or list(self._given.layers)
        return [
            SeriesSpec(
                key=series_key(NAME, name),
                name=NAME,
                group=name,
                family="logits",
                help=f"{what} of one attention layer, the scale in force included",
            )
            for name in names
        ]

    def measure(self, step: int) -> Measured:
        with undisturbed(self._model), self._autocast.again(), uncompiled():
            return {
                series_key(NAME, name): largest_logit(q_BHTD, k_BGTD, self._given)
                for name, (q_BHTD, k_BGTD) in self._look().items()
            }

    def _look(self) -> dict[str, tuple[Tensor, Tensor]]:
        inputs_BT = self._probe.inputs_BT
        if getattr(inputs_BT, "ndim", 0) == 2:
            inputs_BT = inputs_BT[:, : self._given.tokens]
        if self._given.read is not None:
            return dict(self._given.read(self._model, inputs_BT))
        seen: dict[int, Tensor] = {}
        with _listening(self._layers, seen):
            if self._probe.forward is not None:
                self._probe.forward(self._model, inputs_BT)
            else:
                self._model(inputs_BT)
        return {
            layer.name: self._split(layer, seen)
            for layer in self._layers
            if id(layer.queries) in seen and id(layer.keys) in seen
        }

    def _split(self, layer: Layer, seen: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Queries [B, H, T, D] and keys [B, G, T, D] of what the modules gave.

        They give [B, T, H * D], [B, T, H, D] or [B, H, T, D], keys as queries.
        """
        heads = self._given.heads or 1
        q, k = seen[id(layer.queries)], seen[id(layer.keys)]
        if layer.queries is layer.keys:
            others = self._given.kv_heads or heads
            size = q.shape[-1] // (heads + 2 * others)
            q, k, _ = q.split([heads * size, others * size, others * size], -1)
        if q.ndim == 3:
            q = q.unflatten(-1, (heads, -1)).transpose(1, 2)
            return q, k.unflatten(-1, (-1, q.shape[-1])).transpose(1, 2)
        return (q.transpose(1, 2), k.transpose(1, 2)) if q.shape[2] == heads else (q, k)


def find_layers(model: Any, given: Attention) -> list[Layer]:
    """Attention layers by the names of their modules, in the order of the model."""
    held = held_prefixes(model)
    families: dict[str, dict[str, nn.Module]] = {}
    for name, module in model.named_modules():
        layer, _, last = clean_name(f"{name}.", held).removesuffix(".").rpartition(".")
        families.setdefault(layer, {})[last] = module
    found = []
    for layer, members in families.items():
        q = _first(members, [given.queries] if given.queries else QUERIES)
        k = _first(members, [given.keys] if given.keys else KEYS)
        both = _first(members, [given.fused])
        if q is not None and k is not None:
            found.append(Layer(layer or "model", q, k))
        elif both is not None:
            found.append(Layer(layer or "model", both, both))
    return found


def _first(members: dict[str, nn.Module], patterns: Sequence[str]) -> nn.Module | None:
    """The module that the earliest of the patterns fits."""
    for pattern in patterns:
        for last, module in members.items():
            if re.fullmatch(pattern, last, re.IGNORECASE):
                return module
    return None


@contextmanager
def _listening(layers: Sequence[Layer], seen: dict[int, Tensor]) -> Iterator[None]:
    def keep(module: nn.Module, _inputs: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        seen[id(module)] = tensor.detach()

    modules = {id(m): m for layer in layers for m in (layer.queries, layer.keys)}
    handles = [module.register_forward_hook(keep) for module in modules.values()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def largest_logit(q_BHTD: Tensor, k_BGTD: Tensor, given: Attention) -> Tensor:
    """Largest q.k times the scale over rows, heads and positions, 0-dim; or the bound of it.

    The bound is max over i of |q_i| max over j of |k_j| (Cauchy-Schwarz; j <= i if causal).

    Raises:
        ValueError: what is given is only a part of the heads, as under tensor parallelism.
    """
    if is_sharded(q_BHTD) or is_sharded(k_BGTD):
        raise ValueError("queries and keys lie in parts on several devices")
    scale = given.scale if given.scale is not None else 1 / math.sqrt(q_BHTD.shape[-1])
    q, k = q_BHTD.float(), k_BGTD.float()
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    found = _product(q, k, given.is_causal) if given.exact else _bound(q, k, given.is_causal)
    return found.mul(scale)


def _bound(q_BHTD: Tensor, k_BHTD: Tensor, is_causal: bool) -> Tensor:
    q_BHT = torch.linalg.vector_norm(q_BHTD, dim=-1)
    k_BHT = torch.linalg.vector_norm(k_BHTD, dim=-1)
    reach = k_BHT.cummax(-1).values if is_causal else k_BHT.amax(-1, keepdim=True)
    found: Tensor = (q_BHT * reach).amax()
    return found


def _product(q_BHTD: Tensor, k_BHTD: Tensor, is_causal: bool) -> Tensor:
    """Some heads at a time."""
    q_NTD, k_NTD = q_BHTD.flatten(0, 1), k_BHTD.flatten(0, 1)
    time, other = q_NTD.shape[1], k_NTD.shape[1]
    hidden_TT = torch.ones(time, other, dtype=torch.bool, device=q_NTD.device).triu(1)
    at_once = max(1, CHUNK // (time * other))
    tops = []
    for q, k in zip(q_NTD.split(at_once), k_NTD.split(at_once), strict=True):
        logits = q @ k.transpose(1, 2)
        if is_causal:
            logits.masked_fill_(hidden_TT, -math.inf)
        tops.append(logits.amax())
    return torch.stack(tops).amax()
