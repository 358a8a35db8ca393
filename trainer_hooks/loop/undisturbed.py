"""Look at a model in evaluation mode and leave nothing changed behind.

Restored afterwards: the train/eval flag of every module, every buffer (values and identity), the
random states of torch (CPU and the model's own devices), of Python and of numpy where it is
loaded. Gradients are off inside. Gradients that exist are left alone.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

MAX_BUFFER_BYTES = 128 * 1024 * 1024
"""Buffers are copied aside, and a measurement may take 256 MiB in all."""


class CannotRestoreError(Exception):
    """The model has more buffers than may be copied aside."""


def buffer_bytes(model: nn.Module) -> int:
    """Bytes of all buffers, each counted once."""
    return sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; on leaving, also by an exception, all is as it was.

    Raises:
        CannotRestoreError: the buffers are larger than ``MAX_BUFFER_BYTES``.
    """
    if (size := buffer_bytes(model)) > MAX_BUFFER_BYTES:
        raise CannotRestoreError(f"the model's buffers take {size / 2**20:.0f} MiB")
    flags = [(module, module.training) for module in model.modules()]
    buffers = _copy_buffers(model)
    with _random_states(model), torch.no_grad():
        try:
            _set_eval(flags)
            yield
        finally:
            for module, training in flags:
                module.training = training
            _restore_buffers(buffers)


def _set_eval(flags: list[tuple[nn.Module, bool]]) -> None:
    """Only the flags: a model's own ``eval()`` may do more, such as merge LoRA weights."""
    for module, _ in flags:
        module.training = False


_Buffer = tuple[dict[str, Any], str, Tensor, Tensor, int]


def _copy_buffers(model: nn.Module) -> list[_Buffer]:
    """Owner, name, tensor, its copy and its version: torch counts writes into a tensor."""
    return [
        (module._buffers, name, tensor, tensor.clone(), tensor._version)
        for module in model.modules()
        for name, tensor in module._buffers.items()
        if tensor is not None
    ]


def _restore_buffers(buffers: list[_Buffer]) -> None:
    for owner, name, tensor, copy, version in buffers:
        if tensor._version != version:
            tensor.copy_(copy)
        if owner.get(name) is not tensor:
            owner[name] = tensor


@contextmanager
def _random_states(model: nn.Module) -> Iterator[None]:
    python_state = random.getstate()
    numpy_random: Any = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    try:
        with torch.random.fork_rng(devices=_cuda_devices(model)):
            yield
    finally:
        random.setstate(python_state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_state)


def _cuda_devices(model: nn.Module) -> list[int]:
    if not torch.cuda.is_available():
        return []
    found = {p.device for p in model.parameters() if p.device.type == "cuda"}
    return sorted(device.index for device in found)
