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

from trainer_hooks.loop.device_clock import DeviceClock, device_clock
from trainer_hooks.loop.guard import Errors
from trainer_hooks.loop.ranks import cut_by
from trainer_hooks.loop.together import Together
from trainer_hooks.schedule import Schedule
from trainer_hooks.signals import SIGNALS
from trainer_hooks.signals.base import AsleepError
from trainer_hooks.wire import Asleep, Scalar, SeriesSpec

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Signal, Subject, SummedSignal

log = logging.getLogger("trainer_hooks")

NOTICE_STEPS = 2
"""Steps after which signals say what they found out about the loop."""


OF_THE_OPTIMIZER = {"learning_rate"}
"""Signals that do not look at the model."""
WAKE_CUT = "fully_shard(model): parts that are DTensors are measured as the whole"


class Instruments:
    """The signals of one model.

    Args:
        next_step: the number the current optimizer step will have.
        switched_off: told the name of a signal that had to go, and its last error.
        tell: told what the run should know about its loop, once.
    """

    def __init__(
        self,
        schedule: Schedule,
        errors: Errors,
        *,
        next_step: Callable[[], int],
        switched_off: Callable[[str, Exception], None],
        tell: Callable[[str, dict[str, Scalar]], None] = lambda text, data: None,
    ) -> None:
        self.asleep: list[Asleep] = []
        self.specs: list[SeriesSpec] = []
        self.cost_s = 0.0
        """What was spent in the optimizer's hooks since the last ``measure``."""
        self._schedule = schedule
        self._errors = errors
        self._next_step = next_step
        self._switched_off = switched_off
        self._tell = tell
        self._signals: list[Signal] = []
        self._extras: dict[str, Any] = {}
        self._handles: list[Any] = []
        self._optimizers = 0
        self._stepped: set[int] = set()
        self._open: list[Signal] | None = None
        self._failed: set[int] = set()
        """Signals that failed at this step's update: what they would measure is not of it."""
        self._spent_s: dict[str, float] = {}
        self._pid = os.getpid()
        self._device: DeviceClock | None = None
        self._together: Together | None = None
        self._attached: tuple[Any, Sequence[Any], dict[str, Any]] | None = None
        self._param_groups = 0
        self.applied = 0
        """Optimizer steps that were made, of those this watch has seen."""
        self.attempted = 0
        self._closures = ClosureCounter()
        self._fuel = Fuel()

    def attach(self, model: Any, optimizers: Sequence[Any], extras: dict[str, Any]) -> None:
        """Build all signals for this model, and listen to its optimizers."""
        self._attached = model, optimizers, extras
        self._extras = extras
        self._device = device_clock(model) if hasattr(model, "parameters") else None
        self._build_all()
        for optimizer in optimizers:
            self._listen(optimizer)

    def _build_all(self) -> None:
        """The signals, for the parameters as they are sorted into optimizers now."""
        from trainer_hooks.signals.base import Subject
        from trainer_hooks.signals.groups import named_parameters
        from trainer_hooks.signals.shards import sharded_world

        if self._attached is None:
            return
        model, optimizers, extras = self._attached
        self._param_groups = _count_groups(optimizers)
        groups, slices = extras.get("groups") or {}, extras.get("slices") or {}
        parameters = named_parameters(model, optimizers, groups, slices)
        world = sharded_world([p.tensor for p in parameters])
        if world > 1 and self._together is None:
            self._together = Together(self._not_together)
            self._schedule.is_shared = True
        subject = Subject(model, optimizers, parameters, extras, world)
        cut = cut_by(model)
        for name, place in SIGNALS.items():
            if cut and name not in OF_THE_OPTIMIZER:
                # Its norms would be those of a part, and its forward pass would wait for others.
                self.asleep.append(Asleep(name, f"a model not cut up by {cut}", WAKE_CUT))
            else:
                self._build(name, place, subject)

    def _not_together(self, reason: str) -> None:
        self._tell(f"the model is in parts and {reason}: norms are not measured", {"scope": "none"})

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

    def take_closure_calls(self) -> int | None:
        """How often the last step's closure was called; None where no optimizer counts that."""
        return self._closures.take()

    def measure(self, step: int, grad_norm: Any) -> dict[str, Any]:
        """Ask the signals that are due; key -> tensor or float. Ends the optimizer step."""
        self._extras["grad_norm"] = grad_norm
        skipped = self.was_skipped
        self.attempted += 1
        self.applied += not skipped
        if self._open and self._stepped and len(self._stepped) < self._optimizers:
            self._finish_update(step)
        due = self._due(step)
        found = self._ask_together(due, step) if self._together else self._ask(due, step, skipped)
        for cadence in {signal.cadence for signal in due} - {"step"}:
            self._schedule.sampled(cadence, step, self._spent_s.pop(cadence, 0.0))
        if self._device is not None:
            for cadence, extra_s in self._device.take().items():
                self._schedule.owes(cadence, extra_s)
        self._end_step(step)
        return found

    def read(self, cells: dict[str, Any]) -> list[SeriesSpec]:
        """Values are on the host: what is no series is taken out; specs that are new."""
        return [spec for signal in self._signals for spec in signal.read(cells)]

    def blame(self, step: int) -> list[str]:
        """The first parameters whose gradient was not finite at this step, if anyone knows."""
        for signal in self._signals:
            if hasattr(signal, "blame"):
                return list(signal.blame(step))
        return []

    def _ask(self, due: list[Signal], step: int, skipped: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for signal in due:
            if id(signal) in self._failed:
                continue
            ask = signal.skipped if skipped else signal.measure
            if self._run(signal, lambda ask=ask: found.update(ask(step))):  # type: ignore[misc]
                self._errors.worked(f"signal {signal.name}")
        return found

    def _ask_together(self, due: list[Signal], step: int) -> dict[str, Any]:
        """The same where every process has a part of the model: sums first, then values.

        A process on which a signal fails gives NaN in its place: the others wait for something.
        """
        from trainer_hooks.signals.base import SummedSignal

        if self._together is None or not any(s.cadence != "step" for s in due):
            return self._ask(due, step, skipped=False)
        summed = [s for s in due if isinstance(s, SummedSignal)]
        sums, agreed = self._together.add(
            [self._part(s, step) for s in summed], self._schedule.proposals()
        )
        found = self._ask([s for s in due if s not in summed], step, skipped=False)
        for signal, total in zip(summed, sums, strict=True):
            self._run(signal, lambda s=signal, t=total: found.update(s.conclude(t)))  # type: ignore[misc]
        if agreed is not None:
            self._schedule.agree(agreed)
        return found

    def _part(self, signal: SummedSignal, step: int) -> Any:
        import torch

        width = signal.width
        nothing = torch.full((width,), float("nan"), dtype=torch.float64)
        if id(signal) in self._failed:
            return nothing
        try:
            return signal.sums(step)
        except Exception as error:
            self._errors.note(f"signal {signal.name}", error)
            return nothing

    def _end_step(self, step: int) -> None:
        self._open = None
        self._failed.clear()
        self._stepped.clear()
        self.cost_s = 0.0
        if self._together is not None:
            self._together.look_round(step)
        if self.attempted == NOTICE_STEPS:
            self._give_notice()
        if self._attached and _count_groups(self._attached[1]) != self._param_groups:
            self._signals, self.asleep = [], []
            self._build_all()

    def _give_notice(self) -> None:
        for signal in self._signals:
            text = signal.notice()
            if text:
                log.warning("%s", text)
                self._tell(text, {"signal": signal.name})

    def _build(self, name: str, place: str, subject: Subject) -> None:
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
        if self._together is not None and not self._together.is_open(step):
            return [s for s in self._signals if s.cadence == "step"]
        return [s for s in self._signals if s.cadence == "step" or self._is_due(s, step)]

    def _is_due(self, signal: Signal, step: int) -> bool:
        return self._schedule.due(signal.cadence, step)

    def _before(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """The optimizer's pre hook; the first one of a step counts."""
        if self._pid != os.getpid():
            return
        self._fuel.look(optimizer)
        if self._open is None:
            self._in_hook(self._open_update)

    def _after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """The optimizer's post hook; the update is over when all have made their step."""
        if self._pid == os.getpid():
            if self._fuel.had_some(optimizer):
                self._stepped.add(id(optimizer))
            self._closures.stepped(optimizer)
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
        self._at_update(lambda signal: signal.before_update(step))

    def _finish_update(self, step: int) -> None:
        self._at_update(lambda signal: signal.after_update(step))

    def _at_update(self, act: Callable[[Signal], object]) -> None:
        for signal in self._open or []:
            if id(signal) in self._failed:
                continue
            if not self._run(signal, lambda signal=signal: act(signal)):  # type: ignore[misc]
                self._failed.add(id(signal))

    def _run(self, signal: Signal, act: Callable[[], object]) -> bool:
        """Whether it worked. Only a measurement that succeeds ends a row of failures."""
        clock = self._device if signal.cadence != "step" else None
        mark = clock.begin() if clock is not None else None
        began = time.perf_counter()
        try:
            act()
        except AsleepError as error:
            self._take_off(signal, error)
            return False
        except Exception as error:
            if self._errors.note_part(f"signal {signal.name}", error) and self._together is None:
                self._take_off(signal, error)
            return False
        finally:
            spent_s = time.perf_counter() - began
            self._spent_s[signal.cadence] = self._spent_s.get(signal.cadence, 0.0) + spent_s
            if clock is not None:
                clock.end(signal.cadence, mark, spent_s)
        return True

    def _take_off(self, signal: Signal, error: Exception) -> None:
        self._signals = [s for s in self._signals if s is not signal]
        self._switched_off(signal.name, error)


def _count_groups(optimizers: Sequence[Any]) -> int:
    return sum(len(getattr(optimizer, "param_groups", ())) for optimizer in optimizers)


class Fuel:
    """Whether an optimizer that is given gradients was given none this time: it changes nothing.

    Those that take them from elsewhere than ``grad`` never had any, and nothing is said of them.
    """

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._now: set[int] = set()

    def look(self, optimizer: Any) -> None:
        """Before its step."""
        if _has_gradients(optimizer):
            self._known.add(id(optimizer))
            self._now.add(id(optimizer))

    def had_some(self, optimizer: Any) -> bool:
        """After its step; a closure may have made them within."""
        key = id(optimizer)
        found = key in self._now or key not in self._known or _has_gradients(optimizer)
        self._now.discard(key)
        return found


def _has_gradients(optimizer: Any) -> bool:
    """Ends at the first gradient there is: a microsecond in all but broken steps."""
    groups = getattr(optimizer, "param_groups", ())
    return any(p.grad is not None for group in groups for p in group.get("params", ()))


class ClosureCounter:
    """How often optimizers evaluate the loss within a step: those that count it (L-BFGS)."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._calls: int | None = None

    def stepped(self, optimizer: Any) -> None:
        """An optimizer made its step."""
        if type(optimizer).__name__ != "LBFGS":
            return
        state = optimizer.state.get(optimizer.param_groups[0]["params"][0], {})
        total = int(state.get("func_evals", 0))
        self._calls = (self._calls or 0) + total - self._before.get(id(optimizer), 0)
        self._before[id(optimizer)] = total

    def take(self) -> int | None:
        """Calls since the last time."""
        calls, self._calls = self._calls, None
        return calls
