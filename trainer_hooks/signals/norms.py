"""L2 norms of many tensors at once, right also where squares leave the number format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer_hooks.signals.shards import copies

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def tensor_norms(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each tensor, float64 [number of tensors], on the tensors' device.

    Half precision is summed in float32. A sparse tensor counts with its coalesced values, a
    complex one with its absolute values. On a CPU, where nobody has to wait to look, a float32
    norm whose squares overflowed is taken again in float64.
    """
    dense = [_values(tensor.detach()) for tensor in tensors]
    norms = _stacked(_norms(dense))
    if norms.device.type == "cpu":
        for index in (~norms.isfinite()).nonzero().flatten().tolist():
            wide = dense[index].abs().double()
            norms[index] = torch.linalg.vector_norm(wide)
    return norms


def _stacked(norms: Sequence[Tensor]) -> Tensor:
    """As one float64 tensor; few conversions where all are of one kind."""
    if all(norm.dtype is norms[0].dtype for norm in norms):
        return torch.stack(list(norms)).double()
    return torch.stack([norm.double() for norm in norms])


def _norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """One fused call for each kind of number."""
    found: list[Tensor | None] = [None] * len(tensors)
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, tensor in enumerate(tensors):
        kinds.setdefault((tensor.dtype, tensor.device), []).append(index)
    for (dtype, _), places in kinds.items():
        chosen = [tensors[index] for index in places]
        for index, norm in zip(places, _fused(chosen, dtype), strict=True):
            found[index] = norm if norm.device == tensors[0].device else norm.to(tensors[0].device)
    return [norm for norm in found if norm is not None]


def _fused(tensors: list[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    if dtype.is_complex:
        return [torch.linalg.vector_norm(tensor) for tensor in tensors]
    norms: Sequence[Tensor] = torch._foreach_norm(tensors, 2, dtype=_WIDE.get(dtype))
    return norms


def _values(tensor: Tensor) -> Tensor:
    """The numbers of a sparse tensor, each place once; a dense tensor itself."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def joint(norms: Tensor) -> Tensor:
    """The norm of several tensors together from their norms, 0-dim."""
    found: Tensor = torch.linalg.vector_norm(norms)
    return found


class Shares:
    """How much of every tensor's sums this process's part counts for: 1 / (copies of it)."""

    def __init__(self, wholes: Sequence[Any], world: int) -> None:
        self._held = None if world == 1 else [1.0 / copies(whole, world) for whole in wholes]
        self._tensor: Tensor | None = None

    def of(self, sums: Tensor) -> Tensor:
        """Its share of sums [number of tensors, ...]; over all processes they add up."""
        if self._held is None:
            return sums
        if self._tensor is None or self._tensor.device != sums.device:
            self._tensor = torch.tensor(self._held, dtype=torch.float64, device=sums.device)
        return sums * (self._tensor if sums.ndim == 1 else self._tensor[:, None])


class Grouping:
    """Sums of tensors -> sums of groups. Index tensors are made once: making one waits.

    Args:
        groups: the group of every tensor; empty: it is in none.
    """

    def __init__(self, groups: Sequence[str]) -> None:
        self.names = list(dict.fromkeys(group for group in groups if group))
        self.places = [self.names.index(group) if group else -1 for group in groups]
        self._index: Tensor | None = None

    def sums(self, values: Tensor) -> Tensor:
        """[tensors, ...] -> [groups, ...]."""
        if self._index is None or self._index.device != values.device:
            # What is in no group is put into one more, which is cut off again.
            last = len(self.names)
            places = [place if place >= 0 else last for place in self.places]
            self._index = torch.tensor(places, device=values.device)
        shape = (len(self.names) + 1, *values.shape[1:])
        found = values.new_zeros(shape).index_add_(0, self._index, values)
        return found[: len(self.names)]
