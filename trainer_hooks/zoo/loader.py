"""The zoo's loader: windows of bytes without overlap, in a shuffled order, once each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from trainer_hooks.zoo.corpus import END_OF_TEXT
from trainer_hooks.zoo.model import CONTEXT

BATCH = 16
REMEMBERED = 16

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, bytes as int64, each [B, T]."""


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

    def draw(self) -> Batch:
        """The next batch; a new shuffled epoch begins when the windows are used up."""
        if self._next + BATCH > len(self._order):
            again = torch.randperm(len(self._order), generator=self._generator)
            self._order, self._next = self._order[again], 0
        rows = self._order[self._next : self._next + BATCH]
        self._next += BATCH
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
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()


def held_out_rows(documents: Sequence[bytes], rows: int, seed: int = 0) -> Batch:
    """Fixed held-out windows [rows, T], one from each document in turn."""
    generator = torch.Generator().manual_seed(seed)
    windows = []
    for index in range(rows):
        document = documents[index % len(documents)]
        start = int(torch.randint(len(document) - CONTEXT, (1,), generator=generator))
        windows.append(list(document[start : start + CONTEXT + 1]))
    ids = torch.tensor(windows)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
