"""Faults by name: one file and one line each."""

from __future__ import annotations

from importlib import import_module

from trainer_hooks.zoo.faults.base import Fault

FAULTS: dict[str, str] = {
    "healthy": "trainer_hooks.zoo.faults.base:Fault",
    "stale_loader": "trainer_hooks.zoo.faults.stale_loader:StaleLoader",
    "over_training": "trainer_hooks.zoo.faults.over_training:OverTraining",
    "no_decay": "trainer_hooks.zoo.faults.no_decay:NoDecay",
    "zero_lr": "trainer_hooks.zoo.faults.zero_lr:ZeroLearningRate",
    "nan_loss": "trainer_hooks.zoo.faults.nan_loss:NanLoss",
}


def fault_class(name: str) -> type[Fault]:
    """The class behind a name of ``FAULTS``.

    Raises:
        ValueError: there is no such fault.
    """
    if name not in FAULTS:
        raise ValueError(f"no fault is called {name!r}; there are: {', '.join(FAULTS)}")
    module, _, attribute = FAULTS[name].partition(":")
    found: type[Fault] = getattr(import_module(module), attribute)
    return found
