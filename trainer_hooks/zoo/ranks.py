"""Two processes that train one model: what only goes wrong with more than one rank.

The first rank is this process and has the watch; the second one is a child. Gradients are averaged
by hand, so that a fault can leave one out.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainer_hooks.zoo.faults import fault_class
from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.run import MakeWatch, Training, Truth, one_thread

RANKS = 2
TIMEOUT = timedelta(seconds=120)
LEAVE_S = 30.0
COMPARE_EVERY = 25


def train(
    fault: Fault, told: Truth, watch: MakeWatch | None, checkpoints: Path | None
) -> list[float]:
    """The first rank's losses."""
    with tempfile.TemporaryDirectory(prefix="watchkeeper-ranks-") as folder:
        meeting = f"file://{folder}/meeting"
        context = multiprocessing.get_context("spawn")
        told_child = (told.fault, told, (fault.onset, fault.end), meeting, watch is not None)
        child = context.Process(target=_second_rank, args=told_child, daemon=True)
        child.start()
        try:
            with _joined(0, meeting):
                return RankTraining(fault, told, watch, checkpoints).run()
        finally:
            child.join(LEAVE_S)
            if child.is_alive():
                child.terminate()


def _second_rank(
    name: str, told: Truth, touched: tuple[int, int], meeting: str, is_watched: bool
) -> None:
    with one_thread(), _joined(1, meeting):
        torch.manual_seed(told.seed)
        make: MakeWatch | None = None
        if is_watched:
            from trainer_hooks.watch import watch as make_watch

            make = make_watch
        RankTraining(fault_class(name)(*touched), told, make, None).run()


@contextmanager
def _joined(rank: int, meeting: str) -> Iterator[None]:
    """In the process group, and named as a launcher would."""
    names = {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=TIMEOUT
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class RankTraining(Training):
    """One rank's part: its own data, everybody's gradient."""

    def __init__(
        self, fault: Fault, told: Truth, watch: MakeWatch | None, checkpoints: Path | None
    ) -> None:
        super().__init__(fault, told, watch, checkpoints)
        self.fault.before_clip = self._average  # type: ignore[method-assign]

    def settings(self) -> dict[str, Any]:
        found = super().settings() | {"replicas": True}
        found["every"] = found["every"] | {"ranks": COMPARE_EVERY}
        return found

    def _average(self, step: int, model: nn.Module) -> None:
        """The mean of all ranks' gradients, in one packed collective."""
        left_out = getattr(self.fault, "left_out", lambda _step: ())(step)
        chosen = [p.grad for n, p in model.named_parameters() if n not in left_out]
        gradients = [gradient for gradient in chosen if gradient is not None]
        packed = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(packed)
        packed /= RANKS
        place = 0
        for gradient in gradients:
            size = gradient.numel()
            gradient.copy_(packed[place : place + size].view_as(gradient))
            place += size
