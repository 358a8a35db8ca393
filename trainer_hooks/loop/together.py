"""Processes that hold parts of one model add up their sums: one packed collective on a due step.

No collective is started before every process has said, through the process group's store, that
it has a watch; with hooks on some of them only, nothing is ever started. What is due is then the
same everywhere: it follows from the step, and from a figure that all agreed on in the collective
before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

MAX_INVITATIONS = 20
"""Steps on which the others are looked for; a process without hooks never comes."""
LEAD_STEPS = 2
"""From finding all to the first collective. The model's own collectives lie between two steps, so
that every process has seen the first step's number before it comes to it."""

_numbers = itertools.count()
"""All processes number their watches alike: that is how they find each other."""


class Together:
    """The agreement, as one process sees it.

    Args:
        give_up: told why there will be no sums over processes.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        import torch.distributed as dist

        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._give_up = give_up
        self._prefix = f"watchkeeper/sums/{next(_numbers)}"
        self._start: int | None = None
        self._invitations = 0
        self._figures: Any = None
        self.is_off = False
        self._store().set(f"{self._prefix}/here/{self.rank}", "1")

    def is_open(self, step: int) -> bool:
        """Whether all processes take part in what is due at this step."""
        return not self.is_off and self._start is not None and step >= self._start

    def look_round(self, step: int) -> None:
        """Step ``step`` is done: find the others, as long as that is not settled."""
        if self.is_off or self._start is not None:
            return
        self._invitations += 1
        store, key = self._store(), f"{self._prefix}/start"
        if self.rank != 0:
            if store.check([key]):
                self._start = int(store.get(key))
        elif store.check([f"{self._prefix}/here/{rank}" for rank in range(self.world)]):
            self._start = step + LEAD_STEPS
            store.set(key, str(self._start))
        if self._start is None and self._invitations >= MAX_INVITATIONS:
            self.is_off = True
            self._give_up("not every process has a watch")

    def add(
        self, parts: Sequence[Any], figures: Sequence[float]
    ) -> tuple[list[Any], list[float] | None]:
        """The parts summed over all processes, and the mean figures of the collective before.

        Args:
            parts: float64 vectors, on every process of the same sizes.
            figures: this process's own; all get the means, one collective later.
        """
        import torch
        import torch.distributed as dist

        device = parts[0].device if parts else torch.device("cpu")
        mine = torch.tensor(figures, dtype=torch.float64, device=device) / self.world
        packed = torch.cat([mine, *(part.to(device) for part in parts)])
        dist.all_reduce(packed)
        count = len(figures)
        before, self._figures = self._figures, packed[:count]
        agreed = None if before is None else before.tolist()
        sizes = [int(part.numel()) for part in parts]
        summed = list(torch.split(packed[count:], sizes)) if sizes else []
        return summed, agreed

    def _store(self) -> Any:
        from torch.distributed import distributed_c10d

        return distributed_c10d._get_default_store()
