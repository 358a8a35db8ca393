"""A bounded copy of what the loader gave: all that the training thread has to do with it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of one batch. ``tokens_BT``: int32 [B, T] on the host; ``sources``: of all its rows."""

    tokens_BT: Any
    sources: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return 0 if self.tokens_BT is None else int(self.tokens_BT.numel()) * 4


def chosen_rows(tokens: Any, limit: int) -> Any:
    """Whole rows [B, T], evenly spread, at most ``limit`` tokens (one row may be cut); a view.

    None where these are no token ids.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tokens, torch.Tensor):
        return None
    if tokens.is_floating_point() or tokens.is_complex() or tokens.numel() == 0:
        return None
    rows_BT = tokens.detach()
    rows_BT = rows_BT.reshape(-1, rows_BT.shape[-1]) if rows_BT.dim() != 1 else rows_BT[None]
    wanted = max(1, limit // rows_BT.shape[1])
    stride = -(-rows_BT.shape[0] // wanted)
    return rows_BT[::stride, :limit]


def copy_rows(rows_BT: Any) -> Any:
    """A copy as int32: the loop may write over its own. Token ids fit."""
    torch: Any = sys.modules["torch"]
    return rows_BT.to(torch.int32, copy=True)
