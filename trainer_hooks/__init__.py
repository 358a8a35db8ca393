"""Hooks for a training loop. Importing this loads the standard library only (PEP 562, lazily)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_hooks.answers.prompts import PromptSet as PromptSet
    from trainer_hooks.attention import Attention as Attention
    from trainer_hooks.feed.settings import Feed as Feed
    from trainer_hooks.probe import Probe as Probe
    from trainer_hooks.watch import Watch as Watch
    from trainer_hooks.watch import watch as watch

_PUBLIC = {
    "Attention": "trainer_hooks.attention",
    "Feed": "trainer_hooks.feed.settings",
    "Probe": "trainer_hooks.probe",
    "PromptSet": "trainer_hooks.answers.prompts",
    "Watch": "trainer_hooks.watch",
    "watch": "trainer_hooks.watch",
}

__all__ = ["Attention", "Feed", "Probe", "PromptSet", "Watch", "watch"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'trainer_hooks' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    # Importing ``trainer_hooks.watch`` puts the module under that name; the function belongs there.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
