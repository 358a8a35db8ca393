"""Faults that need two ranks, and the control that has two and nothing wrong."""

from __future__ import annotations

from typing import Any, ClassVar

from trainer_hooks.zoo.corpus import Corpus
from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import Loader

LEFT_OUT = "blocks.1.up_proj.weight"
SEED_STRIDE = 1000


def _rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


class TwoRanks(Fault):
    """A control: two replicas, each with data of its own."""

    is_control: ClassVar[bool] = True
    training: ClassVar[str] = "trainer_hooks.zoo.ranks:train"
    steps: ClassVar[int] = 400

    def loader(self, corpus: Corpus, seed: int) -> Loader:
        return Loader(corpus.train, seed + SEED_STRIDE * _rank())


class RankDesync(TwoRanks):
    """One tensor is left out of the all-reduce for a while: the ranks part for good."""

    is_control: ClassVar[bool] = False
    default_onset: ClassVar[int] = 151
    length: ClassVar[int | None] = 150

    def left_out(self, step: int) -> tuple[str, ...]:
        """Names of the parameters whose gradients are not averaged."""
        return (LEFT_OUT,) if self.active(step) else ()


class SameSeed(TwoRanks):
    """Both ranks shuffle with the same seed: twice the work for the same batch."""

    is_control: ClassVar[bool] = False
    default_onset: ClassVar[int] = 1

    def loader(self, corpus: Corpus, seed: int) -> Any:
        return Loader(corpus.train, seed)
