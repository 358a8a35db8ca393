"""The zoo's checkpoints, for ``watchkeeper sample --load trainer_hooks.zoo.checkpoint:load``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from trainer_hooks.answers.prompts import PromptSet
from trainer_hooks.zoo.model import TinyGPT
from trainer_hooks.zoo.prompts import held_out_prompts


def load(path: Path, device: str) -> tuple[Any, PromptSet]:
    """The model with the checkpoint's weights, and what the zoo asks."""
    model = TinyGPT()
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    return model.to(device), held_out_prompts()
