"""Values that are still on a device: brought to the host in one packed copy, one due step late.

On the CPU there is nothing to wait for: values are read at once. On an accelerator the rows of the
steps since the last due step wait; on a due step all their values go into one tensor, whose copy
to pinned memory is started, and read on a later due step when it has arrived by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(slots=True)
class Waiting:
    """A row that is not complete: ``tensors`` are 0-dim, ``hashes`` int64 [B], on a device."""

    step: int
    at: float
    attempt: str
    cells: dict[str, Any]
    tensors: dict[str, Any] = field(default_factory=dict)
    hashes: list[Any] = field(default_factory=list)
    """Row fingerprints: lists of int, and tensors."""
    fed: list[Any] = field(default_factory=list)
    """Samples of what was fed; on a device their tokens are int64, and int32 once here."""
    sampled: bool = False
    """Whether signals other than those of every step were asked."""
    through: bool = True
    """Whether this completes its step (late evaluations do not)."""


@dataclass(slots=True)
class _Copy:
    """A packed copy on its way: the host tensor (int64), where its values go, and its arrival."""

    rows: list[Waiting]
    host: Any
    slots: list[tuple[Waiting, str]]
    arrived: Any


Emit = Callable[[Waiting], None]


class Reader:
    """Completes rows, in order, and emits them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._rows: list[Waiting] = []
        self._copies: list[_Copy] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a row waits for a device."""
        return bool(self._rows or self._copies)

    def add(self, row: Waiting) -> None:
        """Read what lies on the host; keep the row if something does not."""
        _read_host(row)
        row.hashes = [h.tolist() if _on_cpu(h) else h for h in row.hashes]
        if row.tensors or _device_hashes(row) or _device_samples(row) or self.is_waiting:
            self._rows.append(row)
        else:
            self._emit(row)

    def turn(self) -> None:
        """A due step: read the copies that arrived, start one for what waits since."""
        while self._copies and self._copies[0].arrived():
            self._finish(self._copies.pop(0))
        if self._rows:
            rows, self._rows = self._rows, []
            self._copies.append(_start_copy(rows))

    def drain(self) -> None:
        """The end: read everything, waiting for the device."""
        self.turn()
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.arrived(wait=True)
            self._finish(copy)

    def _finish(self, copy: _Copy) -> None:
        torch: Any = sys.modules["torch"]
        values = copy.host.view(torch.float64).tolist()
        for place, (row, key) in enumerate(copy.slots):
            row.cells[key] = values[place]
        rest = copy.host[len(copy.slots) :]
        for row in copy.rows:
            for index, hashes in enumerate(row.hashes):
                if not isinstance(hashes, list):
                    row.hashes[index], rest = rest[: len(hashes)].tolist(), rest[len(hashes) :]
            for index, sample in enumerate(row.fed):
                if _is_away(sample.tokens_BT):
                    shape, count = sample.tokens_BT.shape, sample.tokens_BT.numel()
                    here, rest = rest[:count].to(torch.int32).reshape(shape), rest[count:]
                    row.fed[index] = replace(sample, tokens_BT=here)
            row.tensors = {}
            self._emit(row)


def _read_host(row: Waiting) -> None:
    """Values in the host's memory: one read for all of them, and none of a device."""
    here = [(key, tensor) for key, tensor in row.tensors.items() if tensor.device.type == "cpu"]
    if len(here) == 1:
        row.cells[here[0][0]] = here[0][1].tolist()
    elif here:
        torch: Any = sys.modules["torch"]
        with torch.no_grad():
            values = torch.stack([tensor.double() for _, tensor in here]).tolist()
        row.cells.update(zip((key for key, _ in here), values, strict=True))
    for key, _ in here:
        del row.tensors[key]


def _on_cpu(hashes: Any) -> bool:
    return not isinstance(hashes, list) and hashes.device.type == "cpu"


def _device_hashes(row: Waiting) -> list[Any]:
    return [h for h in row.hashes if not isinstance(h, list)]


def _is_away(tokens: Any) -> bool:
    return tokens is not None and tokens.device.type != "cpu"


def _device_samples(row: Waiting) -> list[Any]:
    return [sample for sample in row.fed if _is_away(sample.tokens_BT)]


def _start_copy(rows: list[Waiting]) -> _Copy:
    """All values of the rows as one int64 tensor on its way here: float64 bits, then hashes."""
    torch: Any = sys.modules["torch"]
    with torch.no_grad():
        slots, parts = _stack_by_dtype(torch, rows)
        for row in rows:
            parts += _device_hashes(row)
            parts += [s.tokens_BT.reshape(-1) for s in _device_samples(row)]
        if not parts:
            return _Copy(rows, torch.empty(0, dtype=torch.int64), slots, _at_once)
        device = parts[0].device
        packed = torch.cat([part.to(device) for part in parts])
        if device.type != "cuda":
            return _Copy(rows, packed.cpu(), slots, _at_once)
        host = torch.empty(packed.shape, dtype=torch.int64, pin_memory=True)
        host.copy_(packed, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))

        def arrived(wait: bool = False) -> bool:
            if wait:
                event.synchronize()
            return bool(event.query())

        return _Copy(rows, host, slots, arrived)


def _stack_by_dtype(torch: Any, rows: list[Waiting]) -> tuple[list[tuple[Waiting, str]], list[Any]]:
    """Few kernels for many scalars: one stack and one conversion for each type and device."""
    kinds: dict[tuple[Any, Any], list[tuple[Waiting, str]]] = {}
    for row in rows:
        for key, tensor in row.tensors.items():
            kinds.setdefault((tensor.device, tensor.dtype), []).append((row, key))
    parts = [
        torch.stack([row.tensors[key] for row, key in slots]).double().view(torch.int64)
        for slots in kinds.values()
    ]
    return [slot for slots in kinds.values() for slot in slots], parts


def _at_once(wait: bool = False) -> bool:
    return True
