"""What other trackers cost, installed for one measurement into a folder that is thrown away."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tests.bench.parts.calls import VALUES, Call
from tests.bench.parts.gpt import Loop
from tests.bench.parts.timing import Act

PACKAGES = ("wandb", "tensorboard", "trackio")


@contextmanager
def installed() -> Iterator[str]:
    """The packages on the path, and a folder to write into; needs a package index."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "pip", "install", "-q", "--target", folder, *PACKAGES]
        subprocess.run([sys.executable, *words], check=True, timeout=400)
        sys.path.append(folder)
        os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": folder,
                       "TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}  # fmt: skip
        try:
            yield folder
        finally:
            sys.path.remove(folder)


@contextmanager
def wandb_watch() -> Iterator[dict[str, Act]]:
    """A plain training step and one on which ``wandb.watch(log="all")`` fires."""
    wandb: Any = import_module("wandb")
    plain, seen = Loop(), Loop()
    run = wandb.init(project="bench", mode="offline")
    run.watch(seen.model, log="all", log_freq=1)

    def step() -> None:
        plain.step().item()

    def fire() -> None:
        run.log({"loss": seen.step().item()})

    yield {"plain_step": step, "wandb_watch_step": fire}
    run.finish()


def tensorboard_histograms(folder: str) -> Act:
    """Histograms of all weights and gradients."""
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(folder)
    loop = Loop()
    loop.backward()

    def write() -> None:
        for name, parameter in loop.model.named_parameters():
            writer.add_histogram(f"weights/{name}", parameter, 1)
            writer.add_histogram(f"gradients/{name}", parameter.grad, 1)

    return write


@contextmanager
def calls() -> Iterator[dict[str, Call]]:
    """One log call of Trackio and of W&B with the same 300 scalars."""
    trackio: Any = import_module("trackio")
    wandb: Any = import_module("wandb")
    trackio.init(project="bench")
    run = wandb.init(project="bench", mode="offline")
    yield {
        "trackio": lambda _step: trackio.log(dict(VALUES)),
        "wandb": lambda _step: run.log(dict(VALUES)),
    }
    trackio.finish()
    run.finish()
