"""Tensors of which each process holds a part (DTensor: FSDP2, tensor parallelism, hybrid sharding).

A sum over a tensor is the sum over all processes of (sum over the local part) / (copies of it):
right for shards, for replicas, and for shards of which several processes hold the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor: its local part is not the whole."""
    return hasattr(tensor, "placements") and hasattr(tensor, "to_local")


def local(tensor: Any) -> Tensor:
    """This process's part; a plain tensor itself. Starts no collective."""
    part: Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return part


def copies(tensor: Any, world: int) -> int:
    """How many processes hold what this one holds of it; plain tensors are the same everywhere."""
    if not is_sharded(tensor):
        return world
    mesh = tensor.device_mesh
    sizes = [mesh.size(dim) for dim, p in enumerate(tensor.placements) if p.is_replicate()]
    return int(math.prod(sizes))


def part_size(tensor: Any) -> int:
    """Scalars of the largest part: the same number on every process."""
    if not is_sharded(tensor):
        return int(tensor.numel())
    held: int = tensor.device_mesh.size() // copies(tensor, 1)
    return int(math.ceil(tensor.numel() / held))


def sharded_world(tensors: Sequence[Any]) -> int:
    """Processes that have to add up their parts; 1 where no tensor is sharded."""
    if not any(is_sharded(tensor) for tensor in tensors):
        return 1
    import torch.distributed as dist

    return int(dist.get_world_size()) if dist.is_initialized() else 1
