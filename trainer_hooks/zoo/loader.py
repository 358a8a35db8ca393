"""The zoo's loader: windows of bytes without overlap, in a shuffled order, once each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainer_hooks.zoo.corpus import END_OF_TEXT
from trainer_hooks.zoo.model import CONTEXT

BATCH = 16
REMEMBERED = 16

MASKED = -100
"""Targets that do not count."""


class Batch(NamedTuple):
    """Inputs and targets, bytes as int64, each [B, T]; where rows have sources, their names."""

    inputs_BT: Tensor
    targets_BT: Tensor
    sources: tuple[str, ...] = ()


class Loader:
    """Draws batches; remembers the last few, which is what a loader with a fault serves again."""

    def __init__(self, documents: Sequence[bytes], seed: int) -> None:
        text = bytes([END_OF_TEXT]).join(documents)
        count = (len(text) - 1) // CONTEXT
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._generator = torch.Generator().manual_seed(seed)
        self._order = torch.randperm(count, generator=self._generator)
        self._next = 0
        self.recent: deque[Batch] = deque(maxlen=REMEMBERED)

    def draw(self, count: int = BATCH) -> Batch:
        """The next rows; a new shuffled epoch begins when the windows are used up."""
        if self._next + count > len(self._order):
            again = torch.randperm(len(self._order), generator=self._generator)
            self._order, self._next = self._order[again], 0
        rows = self._order[self._next : self._next + count]
        self._next += count
        batch = self._windows(rows)
        self.recent.append(batch)
        return batch

    def narrow(self, total_bytes: int) -> None:
        """From now on draw from the next ``total_bytes`` only, again and again."""
        ahead = self._order[self._next : self._next + max(BATCH, total_bytes // CONTEXT)]
        self._order, self._next = ahead, 0

    def _windows(self, rows_B: Tensor) -> Batch:
        places = rows_B[:, None] * CONTEXT + torch.arange(CONTEXT + 1)
        window = self._bytes[places].long()
        return Batch(window[:, :-1].contiguous(), window[:, 1:].contiguous())


class MixedLoader:
    """Rows of two sources in every batch: ``other_rows`` of the second one, the rest of the first.

    ``names``: of the two sources; empty where the rows shall not say where they come from.
    """

    def __init__(
        self, first: Loader, second: Loader, other_rows: int, names: tuple[str, ...]
    ) -> None:
        self.first, self.second = first, second
        self.other_rows = other_rows
        self._names = names

    def draw(self, count: int = BATCH) -> Batch:
        """The next batch."""
        others = min(self.other_rows, count)
        parts = [self.first.draw(count - others)] if others < count else []
        parts += [self.second.draw(others)] if others else []
        return joined(
            parts, self._names and (self._names[0],) * (count - others) + (self._names[1],) * others
        )


def joined(parts: Sequence[Batch], sources: tuple[str, ...] = ()) -> Batch:
    """Rows of several batches as one."""
    inputs_BT = torch.cat([part.inputs_BT for part in parts])
    return Batch(inputs_BT, torch.cat([part.targets_BT for part in parts]), sources)


def held_out_rows(documents: Sequence[bytes], rows: int, seed: int = 0) -> Batch:
    """Fixed held-out windows [rows, T], one from each document in turn."""
    generator = torch.Generator().manual_seed(seed)
    windows = []
    for index in range(rows):
        document = documents[index % len(documents)]
        start = int(torch.randint(len(document) - CONTEXT, (1,), generator=generator))
        windows.append(list(document[start : start + CONTEXT + 1]))
    ids = torch.tensor(windows)
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
