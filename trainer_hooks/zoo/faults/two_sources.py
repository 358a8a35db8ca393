"""Runs on two sources: code, and the same language with upper and lower case exchanged.

To a model of bytes they are two languages. What shows in one hardly shows in the mean.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from trainer_hooks.zoo.corpus import Corpus
from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import (
    BATCH,
    Batch,
    Loader,
    MixedLoader,
    held_out_rows,
    joined,
)
from trainer_hooks.zoo.model import VOCAB

SOURCES = ("code", "upper")
NOISE = 0.4
NOISE_STEPS = 150


class TwoSources(Fault):
    """``other_rows`` of the 16 rows of a batch are of the second source."""

    other_rows: ClassVar[int] = 4

    def loader(self, corpus: Corpus, seed: int) -> MixedLoader:
        second = Loader([text.swapcase() for text in corpus.train[1::2]], seed + 1)
        return MixedLoader(Loader(corpus.train[::2], seed), second, self.other_rows, SOURCES)

    def held_out(self, corpus: Corpus, rows: int, seed: int) -> Batch:
        others = rows * self.other_rows // BATCH
        second = [text.swapcase() for text in corpus.held_out[1::2]]
        parts = [
            held_out_rows(corpus.held_out[::2], rows - others, seed=seed),
            held_out_rows(second, others, seed=seed),
        ]
        return joined(parts, (SOURCES[0],) * (rows - others) + (SOURCES[1],) * others)


class SourceRegression(TwoSources):
    """The labels of a small source go bad bit by bit, while the mean goes on getting better."""

    other_rows: ClassVar[int] = 2

    def batch(self, step: int, loader: Any) -> Batch:
        drawn: Batch = loader.draw()
        if not self.active(step):
            return drawn
        share = NOISE * min(1.0, (step - self.onset + 1) / NOISE_STEPS)
        generator = torch.Generator().manual_seed(step)
        targets_BT = drawn.targets_BT.clone()
        rows = targets_BT[-self.other_rows :]
        noise = torch.randint(1, VOCAB, rows.shape, generator=generator)
        spoilt = torch.rand(rows.shape, generator=generator) < share
        targets_BT[-self.other_rows :] = torch.where(spoilt, noise, rows)
        return Batch(drawn.inputs_BT, targets_BT, drawn.sources)


class StarvedSource(TwoSources):
    """The second source's reader dies; the interleaving loader leaves it out without a word."""

    def batch(self, step: int, loader: Any) -> Batch:
        loader.other_rows = 0 if self.active(step) else self.other_rows
        drawn: Batch = loader.draw()
        return drawn


class MixChange(TwoSources):
    """A control: the mix changes, as was planned and announced."""

    is_control: ClassVar[bool] = True
    rows_after: ClassVar[int] = 8

    def batch(self, step: int, loader: Any) -> Batch:
        loader.other_rows = self.rows_after if self.active(step) else self.other_rows
        drawn: Batch = loader.draw()
        return drawn

    def announcement(self, step: int) -> str | None:
        return "half of the rows are upper case now" if step == self.onset else None
