"""One watch for a model: attaching again ends the earlier one, as a notebook's cell does.

The earlier run would never step again, and would look as if it hung.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer_hooks.wire import EndStatus

log = logging.getLogger("trainer_hooks")

CLOSE_S = 2.0
"""How long the earlier one may take to send its rest; what is unsent stays in its spool."""
STATUS: EndStatus = "interrupted"


@dataclass(slots=True)
class _Live:
    """A watch and what it watches, without keeping any of them alive."""

    watch: weakref.ref[Any]
    parts: list[weakref.ref[Any]]
    name: str


_live: list[_Live] = []


def take_over(watch: Any, model: Any, optimizers: Sequence[Any], name: str) -> None:
    """``watch`` is the one of this model and these optimizers from now on.

    In an interactive session also of its name: the cell that is run again makes a new model.
    """
    parts = [part for part in (model, *optimizers) if part is not None]
    for entry in list(_live):
        earlier = entry.watch()
        if earlier is None:
            _live.remove(entry)
            continue
        held = [ref() for ref in entry.parts]
        is_same = any(part is one for part in parts for one in held if one is not None)
        if is_same or (is_interactive() and entry.name == name and bool(held) and bool(parts)):
            _live.remove(entry)
            _end(earlier)
    _live.append(_Live(weakref.ref(watch), _weak(parts), name))


def _weak(parts: Sequence[Any]) -> list[weakref.ref[Any]]:
    found = []
    for part in parts:
        try:
            found.append(weakref.ref(part))
        except TypeError:  # of a kind that cannot be referred to so
            continue
    return found


def leave(watch: Any) -> None:
    """The watch has ended."""
    _live[:] = [entry for entry in _live if entry.watch() not in (None, watch)]


def is_interactive() -> bool:
    """Whether a person types the program in, cell by cell."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def _end(earlier: Any) -> None:
    log.warning("watched again: run %s ends here", earlier.run)
    earlier.close(STATUS, timeout_s=CLOSE_S)
