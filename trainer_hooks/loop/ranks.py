"""Ranks that should be alike, compared: weights of replicas, their data, and who waits for whom.

Each rank gives one packed vector to one gather, in a process group of its own, in the background:
the training thread starts it on a due step and looks on later steps whether it has come. Nothing
begins before every rank has said, through the process group's store, that it takes part; a gather
that does not come ends the comparison, and training goes on.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from trainer_hooks.wire import SeriesSpec, series_key

DEFAULT_EVERY_STEPS = 50
MAX_INVITATIONS = 20
"""Due steps on which the others are looked for; a rank without hooks never comes."""
GROUP_TIMEOUT = timedelta(seconds=10)
PATIENCE_S = 60.0
MAX_RANKS_SHOWN = 64
_STEP, _CHECKSUM, _BATCH, _STEP_S, _WAIT_S = range(5)
_COLUMNS = {"checksum": _CHECKSUM, "batch_hash": _BATCH, "step_s": _STEP_S, "data_wait_s": _WAIT_S}
_EXACT = 1 << 52
"""Whole numbers below this are exact in a float64."""

_HELP = {
    "checksum": ("", "weights", "sum of the rank's weights; replicas have the same, to the bit"),
    "batch_hash": ("", "data", "hash of the rank's batch; no two ranks should have the same"),
    "step_s": ("s", "speed", "the rank's step time"),
    "data_wait_s": ("s", "data", "the rank's wait for data"),
}


def _at_once() -> bool:
    return True


def place() -> tuple[int, int]:
    """This process's rank and how many there are, once a process group has been made."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def is_first() -> bool:
    """Whether this is the one process of the run that is watched in full."""
    rank, world = place()
    if world == 1 and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        rank = int(os.environ.get("RANK") or 0)
    return rank == 0


def cut_by(model: Any) -> str:
    """What has cut the model into parts that only all ranks together can use; "" if nothing has.

    Parts that are DTensors are not meant: those say how they add up to the whole.
    """
    if place()[1] == 1 or not hasattr(model, "modules"):
        return ""
    for module in model.modules():
        if any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__):
            return "FullyShardedDataParallel"
    for parameter in model.parameters():
        if hasattr(parameter, "ds_id") and hasattr(parameter, "ds_tensor"):
            return "DeepSpeed ZeRO-3"
        if getattr(parameter, "tensor_model_parallel", False):
            return "tensor parallelism"
    return ""


def holds_replica(model: Any) -> bool:
    """Whether the model is wrapped so that all ranks hold the same weights."""
    return any(kind.__name__ == "DistributedDataParallel" for kind in type(model).__mro__)


def replicated(model: Any) -> list[Any]:
    """The parameters that every rank holds whole; shards of a tensor differ by design."""
    if not hasattr(model, "parameters"):
        return []
    return [p for p in model.parameters() if not hasattr(p, "placements") and p.numel()]


def checksum(tensors: Sequence[Any]) -> Any:
    """A 0-dim float64: sums of the tensors, each times its number; equal for equal weights."""
    import torch

    with torch.no_grad():
        sums = [torch.sum(tensor.detach(), dtype=torch.float64) for tensor in tensors]
        weights = torch.arange(1, len(sums) + 1, dtype=torch.float64, device=sums[0].device)
        return (torch.stack([s.to(sums[0].device) for s in sums]) * weights).sum()


def batch_hash(hashes: Sequence[Any]) -> float:
    """Row fingerprints of a step's batches as one exact number; NaN where there are none."""
    on_host = [part for part in hashes if isinstance(part, list) or part.device.type == "cpu"]
    rows = [int(value) for part in on_host for value in part]
    if not rows:
        return math.nan
    return float(sum((place + 1) * (value % _EXACT) for place, value in enumerate(rows)) % _EXACT)


class RankTeam:
    """The comparison, as one rank sees it. Every method is cheap except on due steps.

    Args:
        tensors: the weights that replicas share; empty: weights are not compared.
        every: steps between two comparisons, the same on all ranks (the first rank's counts).
        give_up: told why the comparison ends.
    """

    def __init__(
        self,
        tensors: Sequence[Any],
        every: int = DEFAULT_EVERY_STEPS,
        *,
        give_up: Callable[[str], None] = lambda reason: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rank, self.world = place()
        self._tensors = list(tensors)
        self._every = every
        self._give_up = give_up
        self._now = now
        self._start: int | None = None
        self._group: Any = None
        self._invitations = 0
        self._ready: tuple[Any, Callable[[], bool]] | None = None
        self._running: tuple[Any, Any, float] | None = None
        self.is_off = every < 1 or self.world < 2
        if not self.is_off:
            # All ranks number their watches alike: that is how they find each other.
            number = self._store().add(f"watchkeeper/watches/{self.rank}", 1)
            self._prefix = f"watchkeeper/{number}"
            self._store().set(f"{self._prefix}/here/{self.rank}", str(every))

    def specs(self) -> list[SeriesSpec]:
        """The series that the first rank fills."""
        shown = range(min(self.world, MAX_RANKS_SHOWN))
        found = [_spec(name, f"rank{rank}") for name in _HELP for rank in shown]
        text = "largest difference of the replicas' checksums, relative to them; 0 when in step"
        return [
            *found,
            SeriesSpec("checksum_spread", "checksum_spread", family="weights", help=text),
        ]

    def step(
        self, number: int, batch: float, step_s: float | None, wait_s: float
    ) -> dict[str, Any]:
        """This rank has done step ``number``; what has come of an earlier comparison, by series."""
        if self.is_off:
            return {}
        found = self._collect()
        if number % self._every == 0 and self._is_ready(number):
            self._begin([float(number), math.nan, batch, step_s or math.nan, wait_s])
        return found

    def _is_ready(self, number: int) -> bool:
        """Whether the comparison goes on at this step; before it does, whether everyone is there.

        The first rank sets the first step, one interval ahead. All ranks pass the gradient's
        all-reduce in between, so that no rank comes to that step without finding it set.
        """
        if self.is_off:
            return False
        if self._start is None:
            self._start = self._agree(number)
        if self._start is None or number < self._start:
            return False
        if self._running is not None or self._ready is not None:
            return False
        if self._group is None:
            import torch.distributed as dist

            self._group = dist.new_group(backend="gloo", timeout=GROUP_TIMEOUT)
        return True

    def _agree(self, number: int) -> int | None:
        store, key = self._store(), f"{self._prefix}/start"
        self._invitations += 1
        if self.rank != 0:
            if store.check([key]):
                start, every = store.get(key).decode().split()
                self._every = int(every)
                return int(start)
        elif store.check([f"{self._prefix}/here/{rank}" for rank in range(self.world)]):
            store.set(key, f"{number + self._every} {self._every}")
            return number + self._every
        if self._invitations >= MAX_INVITATIONS:
            self._end("not every rank has a watch")
        return None

    def _begin(self, row: list[float]) -> None:
        """Put this rank's row together; its checksum may still be on its way from a device."""
        import torch

        mine = torch.tensor(row, dtype=torch.float64)
        arrived: Callable[[], bool] = _at_once
        if self._tensors:
            total = checksum(self._tensors)
            if total.device.type == "cuda":
                mine = mine.pin_memory()
                mine[_CHECKSUM].copy_(total, non_blocking=True)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(torch.cuda.current_stream(total.device))
                arrived = event.query
            else:
                mine[_CHECKSUM] = total
        self._ready = (mine, arrived)
        self._gather()

    def _gather(self) -> None:
        """Start the gather, once the row is complete."""
        import torch
        import torch.distributed as dist

        if self._ready is None or not self._ready[1]():
            return
        mine, self._ready = self._ready[0], None
        rows = [torch.empty(mine.shape, dtype=mine.dtype) for _ in range(self.world)]
        work = dist.all_gather(rows, mine, group=self._group, async_op=True)
        self._running = (work, rows, self._now())

    def _collect(self) -> dict[str, float]:
        self._gather()
        if self._running is None:
            return {}
        work, rows, began_s = self._running
        if not work.is_completed():
            if self._now() - began_s > PATIENCE_S:
                self._end("a rank does not answer")
            return {}
        self._running = None
        work.wait()  # it has come; an error it ended with is raised here
        return compare([row.tolist() for row in rows]) if self.rank == 0 else {}

    def _end(self, reason: str) -> None:
        self.is_off, self._running = True, None
        self._give_up(reason)

    def _store(self) -> Any:
        from torch.distributed import distributed_c10d

        return distributed_c10d._get_default_store()


def _spec(name: str, rank: str) -> SeriesSpec:
    unit, family, text = _HELP[name]
    key = series_key(name, "", rank)
    return SeriesSpec(key, name, "", rank, unit=unit, family=family, help=text)


def compare(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """All ranks' vectors as values by series; nothing where they are of different steps."""
    if len({row[_STEP] for row in rows}) > 1:
        return {}
    found: dict[str, float] = {}
    for name, column in _COLUMNS.items():
        for rank, row in enumerate(rows[:MAX_RANKS_SHOWN]):
            if not math.isnan(row[column]):
                found[series_key(name, "", f"rank{rank}")] = row[column]
    sums = [row[_CHECKSUM] for row in rows]
    if all(map(math.isfinite, sums)):
        scale = max(map(abs, sums)) or 1.0
        found["checksum_spread"] = (max(sums) - min(sums)) / scale
    return found
