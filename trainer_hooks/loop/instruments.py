"""Drives the signals: builds them, tells them of the optimizer's step, asks them when due.

A signal that fails three times in a row is switched off, and the run is told.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer_hooks.loop.guard import Errors
from trainer_hooks.schedule import Schedule
from trainer_hooks.signals import SIGNALS
from trainer_hooks.wire import Asleep, SeriesSpec

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Signal, Subject

log = logging.getLogger("trainer_hooks")


class Instruments:
    """The signals of one model.

    Args:
        next_step: the number the current optimizer step will have.
        switched_off: told the name of a signal that had to go, and its last error.
    """

    def __init__(
        self,
        schedule: Schedule,
        errors: Errors,
        *,
        next_step: Callable[[], int],
        switched_off: Callable[[str, Exception], None],
    ) -> None:
        self.asleep: list[Asleep] = []
        self.specs: list[SeriesSpec] = []
        self.cost_s = 0.0
        """What was spent in the optimizer's hooks since the last ``measure``."""
        self._schedule = schedule
        self._errors = errors
        self._next_step = next_step
        self._switched_off = switched_off
        self._signals: list[Signal] = []
        self._extras: dict[str, Any] = {}
        self._handles: list[Any] = []
        self._optimizers = 0
        self._stepped: set[int] = set()
        self._open: list[Signal] | None = None
        self._spent_s: dict[str, float] = {}
        self._pid = os.getpid()

    def attach(self, model: Any, optimizers: Sequence[Any], extras: dict[str, Any]) -> None:
        """Build all signals for this model, and listen to its optimizers."""
        from trainer_hooks.signals.base import Subject
        from trainer_hooks.signals.groups import named_parameters

        parameters = named_parameters(model, optimizers)
        subject = Subject(model, optimizers, parameters, extras)
        self._extras = extras
        for name, place in SIGNALS.items():
            self._build(name, place, subject)
        for optimizer in optimizers:
            self._listen(optimizer)

    def detach(self) -> None:
        """Take the hooks off the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @property
    def cadences(self) -> list[str]:
        """Those that a living signal follows, by interval."""
        return sorted({s.cadence for s in self._signals} - {"step"})

    @property
    def was_skipped(self) -> bool:
        """Whether optimizers are listened to and none has made its step (AMP does that)."""
        return self._optimizers > 0 and not self._stepped

    def measure(self, step: int, grad_norm: Any) -> dict[str, Any]:
        """Ask the signals that are due; key -> tensor or float. Ends the optimizer step."""
        self._extras["grad_norm"] = grad_norm
        if self._open and self._stepped and len(self._stepped) < self._optimizers:
            self._finish_update(step)
        found: dict[str, Any] = {}
        due = self._due(step)
        for signal in due:
            if self._run(signal, lambda signal=signal: found.update(signal.measure(step))):  # type: ignore[misc]
                self._errors.worked(f"signal {signal.name}")
        for cadence in {signal.cadence for signal in due} - {"step"}:
            self._schedule.sampled(cadence, step, self._spent_s.pop(cadence, 0.0))
        self._open = None
        self._stepped.clear()
        self.cost_s = 0.0
        return found

    def _build(self, name: str, place: str, subject: Subject) -> None:
        from trainer_hooks.signals.base import AsleepError

        module, _, kind = place.partition(":")
        try:
            signal = getattr(import_module(module), kind)(subject)
            specs = signal.specs()
        except AsleepError as error:
            self.asleep.append(Asleep(name, error.missing, error.wake))
        except Exception as error:
            self._errors.note(f"signal {name}", error)
            self._switched_off(name, error)
        else:
            self._signals.append(signal)
            self.specs += specs

    def _listen(self, optimizer: Any) -> None:
        inner = optimizer
        while not hasattr(inner, "register_step_pre_hook"):
            inner = getattr(inner, "optimizer", None)  # what wrappers call the one inside
            if inner is None:
                log.info("%s has no step hooks: updates are not seen", type(optimizer).__name__)
                return
        self._handles.append(inner.register_step_pre_hook(self._before))
        self._handles.append(inner.register_step_post_hook(self._after))
        self._optimizers += 1

    def _due(self, step: int) -> list[Signal]:
        return [s for s in self._signals if s.cadence == "step" or self._is_due(s, step)]

    def _is_due(self, signal: Signal, step: int) -> bool:
        return self._schedule.due(signal.cadence, step)

    def _before(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """The optimizer's pre hook; the first one of a step counts."""
        if self._open is None and self._pid == os.getpid():
            self._in_hook(self._open_update)

    def _after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """The optimizer's post hook; the update is over when all have made their step."""
        if self._pid == os.getpid():
            self._stepped.add(id(optimizer))
            if len(self._stepped) == self._optimizers:
                self._in_hook(lambda: self._finish_update(self._next_step()))

    def _in_hook(self, act: Callable[[], object]) -> None:
        """An optimizer calls its hooks unprotected: nothing may leave them."""
        began = time.perf_counter()
        try:
            act()
        except Exception as error:
            self._errors.note("an optimizer hook", error)
        self.cost_s += time.perf_counter() - began

    def _open_update(self) -> None:
        step = self._next_step()
        self._open = self._due(step)
        for signal in self._open:
            self._run(signal, lambda signal=signal: signal.before_update(step))  # type: ignore[misc]

    def _finish_update(self, step: int) -> None:
        for signal in self._open or []:
            self._run(signal, lambda signal=signal: signal.after_update(step))  # type: ignore[misc]

    def _run(self, signal: Signal, act: Callable[[], object]) -> bool:
        """Whether it worked. Only a measurement that succeeds ends a row of failures."""
        began = time.perf_counter()
        try:
            act()
        except Exception as error:
            if self._errors.note_part(f"signal {signal.name}", error):
                self._signals = [s for s in self._signals if s is not signal]
                self._switched_off(signal.name, error)
            return False
        finally:
            spent_s = time.perf_counter() - began
            self._spent_s[signal.cadence] = self._spent_s.get(signal.cadence, 0.0) + spent_s
        return True
