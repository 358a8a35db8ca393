"""The part of a rank that holds some of a sharded model: it measures its part, and reports nothing.

The same signals, due at the same steps as on the first rank; their sums meet in one collective.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from trainer_hooks.loop.guard import Errors
from trainer_hooks.loop.instruments import Instruments
from trainer_hooks.loop.options import Options
from trainer_hooks.loop.stepping import whole_here
from trainer_hooks.schedule import Schedule

log = logging.getLogger("trainer_hooks")


class Member:
    """Signals of a rank other than the first."""

    def __init__(self, model: Any, optimizers: Sequence[Any], options: Options) -> None:
        self._done = 0
        self._schedule = Schedule(options.intervals(), options.overhead_budget)
        self._instruments = Instruments(
            self._schedule,
            Errors(lambda: None),
            next_step=lambda: self._done + 1,
            switched_off=lambda name, error: log.warning("signal %s is off: %s", name, error),
        )
        self._instruments.attach(model, optimizers, options.extras())

    @classmethod
    def of(cls, model: Any, optimizers: Sequence[Any], options: Options) -> Member | None:
        """None where the model is whole on every rank: the first one sees all there is."""
        if not hasattr(model, "parameters"):
            return None
        if not any(hasattr(parameter, "placements") for parameter in model.parameters()):
            return None
        return cls(model, optimizers, options)

    def step(self, number: int, grad_norm: Any, step_s: float | None) -> None:
        """Optimizer step ``number`` is done; the sums that are due meet the others' here."""
        began = time.perf_counter()
        spent_s = self._instruments.cost_s
        self._instruments.measure(number, whole_here(grad_norm))
        self._done = number
        if step_s is not None:
            self._schedule.stepped(number, step_s, spent_s + time.perf_counter() - began)

    def resume(self, step: int) -> None:
        """Go on behind this step."""
        self._done = step
        self._schedule.resume(step)

    def close(self) -> None:
        """Take the hooks off."""
        self._instruments.detach()
