"""What other trackers cost, installed for one measurement into a folder that is thrown away."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tests.bench.parts.gpt import Loop

ROUNDS = 7


@contextmanager
def installed(*packages: str) -> Iterator[str]:
    """The packages on the path, and their folder; needs a package index."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "pip", "install", "-q", "--target", folder, *packages]
        subprocess.run([sys.executable, *words], check=True, timeout=400)
        sys.path.append(folder)
        os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": folder,
                       "TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}  # fmt: skip
        try:
            yield folder
        finally:
            sys.path.remove(folder)


def interleaved(*acts: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Median time (ms) of each, one after the other in every round."""
    took: list[list[float]] = [[] for _ in acts]
    for _ in range(rounds):
        for place, act in enumerate(acts):
            began = time.perf_counter()
            act()
            took[place].append(1000 * (time.perf_counter() - began))
    return [statistics.median(times) for times in took]


def wandb_watch_ms() -> float:
    """What ``wandb.watch(log="all")`` adds to a step on which it fires."""
    wandb: Any = import_module("wandb")
    plain, watched = Loop(), Loop()
    run = wandb.init(project="bench", mode="offline")
    run.watch(watched.model, log="all", log_freq=1)

    def fire() -> None:
        run.log({"loss": float(watched.step())})

    without, with_it = interleaved(lambda: float(plain.step()), fire)
    run.finish()
    return with_it - without


def tensorboard_histograms_ms(folder: str) -> float:
    """Histograms of all weights and gradients."""
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(folder)
    loop = Loop()
    loop.backward()

    def write() -> None:
        for name, parameter in loop.model.named_parameters():
            writer.add_histogram(f"weights/{name}", parameter, 1)
            writer.add_histogram(f"gradients/{name}", parameter.grad, 1)

    return interleaved(write)[0]


def trackio_call_ms(values: dict[str, float]) -> float:
    """One log call with these scalars."""
    trackio: Any = import_module("trackio")
    trackio.init(project="bench")
    (took,) = interleaved(lambda: trackio.log(dict(values)), rounds=50)
    trackio.finish()
    return took
