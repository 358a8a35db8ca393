"""Weights that are made of others: ``torch.nn.utils.parametrizations``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainer_hooks.signals.groups import clean_name, group_of, held_prefixes


@dataclass(frozen=True, slots=True)
class Effective:
    """A weight as the layer uses it, under the name it would have without a parametrization."""

    name: str
    group: str
    parts: tuple[str, ...]
    size: int
    _makers: Any

    def compute(self) -> Tensor:
        """The weight now. Evaluation flags meanwhile: spectral norm must not iterate for us."""
        flags = [(part, part.training) for part in self._makers.modules()]
        try:
            for part, _ in flags:
                part.training = False
            with torch.no_grad():
                made: Tensor = self._makers()
                return made.detach()
        finally:
            for part, training in flags:
                part.training = training


def effective_weights(model: Any, own: Mapping[str, str]) -> list[Effective]:
    """All of a model's weights that are made of others, and hold floating-point numbers.

    ``own``: groups of the user's, as in ``group_of``.
    """
    if not isinstance(model, nn.Module):
        return []
    held = held_prefixes(model)
    found = []
    for prefix, layer in model.named_modules():
        makers = getattr(layer, "parametrizations", None)
        if not isinstance(makers, nn.ModuleDict):
            continue
        for tensor_name, maker in makers.items():
            found.append(_describe(clean_name(f"{prefix}.", held), tensor_name, maker, own))
    return [made for made in found if made.size]


def _describe(prefix: str, tensor_name: str, maker: Any, own: Mapping[str, str]) -> Effective:
    name = prefix.removeprefix(".") + tensor_name
    inside = f"{prefix.removeprefix('.')}parametrizations.{tensor_name}."
    parts = tuple(inside + part for part, _ in maker.named_parameters())
    plain = Effective(name, group_of(name, own), parts, 0, maker)
    made = plain.compute()
    size = made.numel() if made.is_floating_point() or made.is_complex() else 0
    return Effective(name, plain.group, parts, size, maker)
