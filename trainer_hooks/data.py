"""The timed loader: how long the loop waited for data, stalls, and rows that were served before.

Waiting is the time inside ``next(iterator)`` on the monotonic clock, summed over the micro-batches
of one optimizer step; what prefetch hid by running ahead is not counted.
"""

from __future__ import annotations

import math
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from statistics import median
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Fingerprint = Callable[[Any], Any]

WINDOW_STEPS = 100
MIN_WAITS = 8
STALL_FACTOR = 5.0
STALL_STEP_SHARE = 0.5
STALL_FLOOR_S = 0.05
TABLE_ROWS = 1 << 20
MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Stall:
    """A wait that stands out: ``wait_s`` against the usual (median) one, in seconds."""

    wait_s: float
    usual_s: float


@dataclass(slots=True)
class WaitMeter:
    """Waits and step times of the last 100 optimizer steps."""

    pending_s: float = 0.0
    fetched: bool = False
    _waits: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))

    def waited(self, seconds: float) -> None:
        """One ``next()`` took this long."""
        self.pending_s += seconds
        self.fetched = True

    def end_step(self, step_s: float | None) -> tuple[float, float | None, Stall | None]:
        """Wait of this step (s), its share over the last 100 steps, and whether it was a stall.

        ``step_s`` is None for the first step, whose time nobody knows: it counts for nothing.
        """
        wait_s, self.pending_s, self.fetched = self.pending_s, 0.0, False
        if step_s is None:
            return wait_s, None, None
        stall = self._judge(wait_s)
        self._waits.append(wait_s)
        self._steps.append(step_s)
        total_s = math.fsum(self._steps)
        share = math.fsum(self._waits) / total_s if total_s > 0 else 0.0
        return wait_s, min(share, 1.0), stall

    def _judge(self, wait_s: float) -> Stall | None:
        if wait_s <= STALL_FLOOR_S or len(self._waits) < MIN_WAITS:
            return None
        usual_s = median(self._waits)
        bound_s = max(STALL_FACTOR * usual_s, STALL_STEP_SHARE * median(self._steps), STALL_FLOOR_S)
        return Stall(wait_s, usual_s) if wait_s > bound_s else None


class RowTable:
    """How often rows were served, by a 64-bit hash; bounded: a newer row takes an older one's slot.

    9 MiB for about a million rows. Forgetting can only miss a repeat, never invent one.
    """

    def __init__(self, slots: int = TABLE_ROWS) -> None:
        self._mask = slots - 1
        self._hashes = array("Q", bytes(8 * slots))
        self._counts = bytearray(slots)

    def serve(self, hashes: Iterable[int], allowed: int) -> int:
        """Note these rows as served; how many of them had been ``allowed`` times or more before."""
        beyond = 0
        for value in hashes:
            row_hash = (value & MASK_64) or 1
            slot = (row_hash ^ (row_hash >> 32)) & self._mask
            if self._hashes[slot] != row_hash:
                self._hashes[slot] = row_hash
                self._counts[slot] = 0
            elif self._counts[slot] >= allowed:
                beyond += 1
            self._counts[slot] = min(self._counts[slot] + 1, 255)
        return beyond


class RepeatMeter:
    """The share of a step's rows that were served before, beyond the declared epochs."""

    def __init__(self, declared_epochs: float = 1.0) -> None:
        self._allowed = min(max(1, math.ceil(declared_epochs)), 255)
        self._table: RowTable | None = None

    def share(self, hashes: list[int]) -> float | None:
        """None where there are no rows: absent is not zero."""
        if not hashes:
            return None
        if self._table is None:
            self._table = RowTable()
        return self._table.serve(hashes, self._allowed) / len(hashes)


class TimedLoader(Generic[T]):
    """A loader whose waits and batches are told to a watch. Its errors are its own."""

    def __init__(
        self,
        loader: Iterable[T],
        *,
        begin: Callable[[], object],
        waited: Callable[[float], object],
        served: Callable[[T], object],
    ) -> None:
        self.loader = loader
        self._begin = begin
        self._waited = waited
        self._served = served

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        self._begin()
        iterator = iter(self.loader)
        while True:
            began = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._waited(time.perf_counter() - began)
            self._served(batch)
            yield batch


def find_tokens(batch: Any) -> Any:
    """The first tensor (or array) of a batch; ``input_ids`` of a mapping that has it."""
    if isinstance(batch, Mapping):
        if "input_ids" in batch:
            return batch["input_ids"]
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((found for item in batch if (found := find_tokens(item)) is not None), None)
    return batch if hasattr(batch, "shape") else None


def hash_rows(rows: Any) -> Any:
    """64-bit hashes of the rows of a tensor [B, ...]: an int64 tensor [B] on its device, or a list.

    A tensor is hashed where it lies, without waiting for it: the sum of the row's values, each
    times a fixed odd 64-bit number, modulo 2**64 (no random number is drawn). Arrays and sequences
    of bytes or integers are hashed on the host.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(rows, torch.Tensor):
        return _hash_tensor(torch, rows)
    if hasattr(rows, "tobytes"):
        return [_hash_bytes(row.tobytes()) for row in rows]
    return [row if isinstance(row, int) else _hash_bytes(bytes(row)) for row in rows]


def _hash_bytes(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


_multipliers: dict[tuple[int, str], Any] = {}


def _hash_tensor(torch: Any, rows: Any) -> Any:
    with torch.no_grad():
        flat_BT = (
            rows.detach().reshape(rows.shape[0], -1) if rows.dim() > 1 else rows.detach()[None]
        )
        if flat_BT.is_floating_point():
            same_size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[flat_BT.element_size()]
            flat_BT = flat_BT.contiguous().view(same_size)
        key = (flat_BT.shape[1], str(flat_BT.device))
        if key not in _multipliers:
            if len(_multipliers) > 64:
                _multipliers.clear()
            _multipliers[key] = _make_multipliers(torch, *key)
        # One more than the token: a row of zeros must not look like an empty one.
        return ((flat_BT.long() + 1) * _multipliers[key]).sum(1)


def _make_multipliers(torch: Any, length: int, device: str) -> Any:
    """Odd 64-bit numbers, SplitMix64 of their place; int64 arithmetic wraps around."""
    z = (torch.arange(length, dtype=torch.int64) + 1) * -7046029254386353131
    z = (z ^ (z >> 30)) * -4658895280553007687
    z = (z ^ (z >> 27)) * -7723592293110705685
    return ((z ^ (z >> 31)) | 1).to(device)
