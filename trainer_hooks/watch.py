"""The watch: what a training loop calls.

    with watch(model, optimizer, name="tiny") as w:
        for batch in w.data(loader):
            ...
            w.step(loss=loss, tokens=batch.numel())

Steps count completed optimizer steps: the first ``step()`` of a fresh run is step 1. Nothing in
here raises into the loop, waits for a disk, a network or a device, or draws a random number.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeVar, Unpack

from trainer_hooks.client import CLOSE_S
from trainer_hooks.data import Fingerprint, TimedLoader
from trainer_hooks.loop.answering import Answering
from trainer_hooks.loop.evaluation import PASS_AT, evaluated
from trainer_hooks.loop.exits import Exits, status_of
from trainer_hooks.loop.guard import Errors, guarded
from trainer_hooks.loop.inert import InertWatch, RankWatch
from trainer_hooks.loop.instruments import Instruments
from trainer_hooks.loop.link import Link
from trainer_hooks.loop.options import Options, WatchOptions
from trainer_hooks.loop.ranks import RankTeam, is_first
from trainer_hooks.loop.recorder import AUTO, Recorder
from trainer_hooks.loop.series import SPECS, interval_spec
from trainer_hooks.loop.state import State, spool_root
from trainer_hooks.loop.succession import leave, take_over
from trainer_hooks.post.account import Tally
from trainer_hooks.post.beside import Beside
from trainer_hooks.schedule import Schedule
from trainer_hooks.wire import Asleep, EndStatus, Event, Phase, PhaseName, Scalar

log = logging.getLogger("trainer_hooks")
T = TypeVar("T")


def watch(
    model: Any = None, optimizer: Any = None, **options: Unpack[WatchOptions]
) -> Watch | InertWatch:
    """Begin to watch a run.

    Args:
        model: the model; None: only what is logged is watched.
        optimizer: the optimizer, or several in a list.
        options: the fields of ``trainer_hooks.loop.options.Options``; see ``docs/quickstart.md``.

    Returns:
        A watch; on ranks other than the first one that does nothing.

    Raises:
        TypeError: an option that does not exist.
    """
    chosen = Options(**options)
    several = isinstance(optimizer, Sequence)
    optimizers = list(optimizer) if several else [] if optimizer is None else [optimizer]
    if not is_first():
        return RankWatch.of(model, optimizers, chosen)
    return Watch(model, optimizers, chosen)


class Watch:
    """One watched run. Made by ``watch``; a context manager, or closed by ``close``.

    Attributes:
        hook_s: time of the training thread spent in hooks so far, in seconds. What hooks make a
            device do is not in it.
    """

    def __init__(self, model: Any, optimizers: Sequence[Any], options: Options) -> None:
        self.pid = os.getpid()
        self.hook_s = 0.0
        self.errors = Errors(self._count_error)
        self._options = options
        self._model = model
        self._early_errors = 0
        self._early_events: list[Event] = []
        self._link: Link | None = None
        self._recorder: Recorder | None = None
        self._answering = Answering(
            model,
            options,
            phase=self.phase,
            note=lambda record: self._to.note(record),
            errors=self.errors,
            switched_off=self._switched_off,
        )
        self._seen_hook_s = 0.0
        self._is_closed = False
        self._schedule = Schedule(options.intervals(), options.overhead_budget)
        self._instruments = Instruments(
            self._schedule,
            self.errors,
            next_step=lambda: self._rec.done + 1,
            switched_off=self._switched_off,
            tell=self._tell,
        )
        self._set_up(model, optimizers)
        self._exits = Exits(self._close)
        self._exits.install()

    @property
    def run(self) -> str:
        """The run's id."""
        return self._to.run

    # What the loop calls.

    def tally(self) -> Tally:
        """The client's account, in values."""
        client = self._link.client if self._link is not None else None
        return client.tally() if client is not None else Tally()

    def data(
        self, loader: Iterable[T], *, fingerprint: Fingerprint | str | None = AUTO
    ) -> Iterable[T]:
        """The loader, timed: data wait, stalls, repeated rows.

        Args:
            fingerprint: batch -> rows to hash (a tensor [B, ...], an array, or a sequence of bytes
                or integers). By default the first tensor of the batch; None switches it off.
        """
        return TimedLoader(
            loader,
            begin=self._show,
            waited=self._waited,
            served=lambda batch: self._served(batch, fingerprint),
        )

    @guarded
    def step(
        self,
        loss: Any = None,
        tokens: int | None = None,
        grad_norm: Any = None,
        *,
        step: int | None = None,
    ) -> None:
        """One optimizer step is done.

        Args:
            loss: its training loss (nats per token): a float, or a tensor of one element.
            tokens: tokens it was trained on.
            grad_norm: total gradient norm before clipping, as ``clip_grad_norm_`` returns it.
            step: the loop's own count of completed steps, where it has one.
        """
        number = self._rec.done + 1 if step is None else int(step)
        if self._to.begun and number <= self._rec.done:
            self._rec.resume(number - 1, self._rec.tokens_seen)
            self._to.rewind()
        self._begin(number)
        self.hook_s += self._instruments.cost_s
        spent_s, self._seen_hook_s = self.hook_s - self._seen_hook_s, self.hook_s
        self._rec.step(number, loss, tokens, grad_norm, hook_s=spent_s)
        if self._schedule.due("answers", number) and self._answering.fits(number):
            self._sample()
            self._schedule.sampled("answers", number, 0.0)

    @guarded
    def micro(self, loss: Any, tokens: int | None = None) -> None:
        """One micro-batch of the coming step, for a loss weighted by tokens."""
        self._rec.micro.add(loss, tokens)

    @guarded
    def predicted(
        self, logits: Any, targets: Any, *, ignore_index: int = -100, vocab: int | None = None
    ) -> None:
        """Logits [..., V] and targets [...] of the coming step's batch: accuracy, calibration."""
        self._rec.predicted(logits, targets, ignore_index=ignore_index, vocab=vocab)

    @guarded
    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Values of your own: they go with the next ``step()``, or with the step named."""
        if step is None:
            self._rec.log(values)
            return
        self._begin(self._rec.done + 1)
        self._rec.put_late(step, values)

    @guarded
    def log_heldout(self, loss: Any, step: int | None = None) -> None:
        """Loss on your validation data, of the weights after ``step`` (default: the present)."""
        self._begin(self._rec.done + 1)
        self._rec.put_late(self._rec.done if step is None else step, {"loss/heldout": loss})

    @guarded
    def log_eval(
        self,
        name: str,
        k: int | Sequence[int],
        n: int,
        weights_step: int | None = None,
        *,
        pass_at: Sequence[int] = PASS_AT,
    ) -> None:
        """An evaluation: ``k`` of ``n`` right, by the weights after ``weights_step``.

        Filed as the share ``eval/<name>`` and its binomial standard error ``eval_error/<name>``.
        Problems with ``n`` tries each: ``k`` lists how many tries of each problem passed; filed as
        ``eval/<name>/pass_at_1`` and so on, unbiased.
        """
        self._begin(self._rec.done + 1)
        step = self._rec.done if weights_step is None else weights_step
        self._rec.put_late(step, evaluated(name, k, n, pass_at))

    @guarded
    def event(self, name: str, text: str = "", data: Mapping[str, Scalar] | None = None) -> None:
        """Something happened."""
        self._begin(self._rec.done + 1)
        self._to.note(Event(name, self._rec.done, time.time(), text, dict(data or {})))

    @contextmanager
    def phase(self, name: PhaseName, *, path: Any = None, text: str = "") -> Iterator[None]:
        """A stretch that is not ordinary training: its time is not the step's."""
        phase = self._open_phase(name, path, text)
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._close_phase(phase, time.perf_counter() - began_s)

    @guarded
    def sample_answers(self) -> None:
        """Ask the model the prompts now, as the phase ``sampling``; nothing of it is disturbed."""
        self._begin(self._rec.done + 1)
        self._sample()

    def state_dict(self) -> dict[str, Any]:
        """Put this into your checkpoint: it lets a resumed process find its run."""
        if self._link is None or self._recorder is None:
            return {}
        return self._link.state(self._recorder.done, self._recorder.tokens_seen)

    @guarded
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a checkpoint was written: the same run, a new attempt."""
        if not state:
            return
        saved = State.from_plain(state)
        self._to.resume(saved)
        self._rec.resume(saved.step, saved.tokens_seen)

    def close(self, status: EndStatus = "finished", *, timeout_s: float = CLOSE_S) -> None:
        """End the run. Takes 5 s at most; what is unsent stays for the next process."""
        self._close(status, None, timeout_s)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self._close(*status_of(kind))

    def __reduce__(self) -> tuple[type[InertWatch], tuple[()]]:
        """Copies and pickles watch nothing: locks and threads do not travel."""
        return InertWatch, ()

    # What happens inside.

    @property
    def _rec(self) -> Recorder:
        if self._recorder is None:
            raise RuntimeError("the watch could not be set up")
        return self._recorder

    @property
    def _to(self) -> Link:
        if self._link is None:
            raise RuntimeError("the watch could not be set up")
        return self._link

    @guarded
    def _set_up(self, model: Any, optimizers: Sequence[Any]) -> None:
        options = self._options
        take_over(self, model, optimizers, options.name)
        if model is not None:
            self._attach(model, optimizers)
        else:
            wake = "watch(model, optimizer)"
            self._instruments.asleep.append(Asleep("signals of the model", "the model", wake))
        beside = Beside(options.beside(model, spool_root(options.spool_dir)))
        asleep = [*self._instruments.asleep, *options.asleep(), *beside.asleep()]
        first = optimizers[0] if optimizers else None
        facts = replace(options.facts(model, first, time.time()), asleep=asleep)
        intervals = [interval_spec(cadence) for cadence in self._instruments.cadences]
        specs = [*SPECS, *self._instruments.specs, *intervals, *beside.specs()]
        team = self._team_up(model)
        specs += team.specs() if team is not None else []
        self._link = Link(options, facts, specs, beside)
        self._recorder = Recorder(
            self._link,
            self._schedule,
            self._instruments,
            options.declared_epochs,
            options.feed,
            team,
            options.scaler,
        )
        for entry in asleep:
            log.info("asleep: %s, for want of %s. %s", entry.what, entry.missing, entry.wake)
        if self._link.is_settled:
            self._link.open()

    @guarded
    def _team_up(self, model: Any) -> RankTeam | None:
        return self._options.team(model, self._ranks_ended)

    def _ranks_ended(self, reason: str) -> None:
        self.event("signal_off", f"ranks are not compared: {reason}", {"signal": "ranks"})

    @guarded
    def _attach(self, model: Any, optimizers: Sequence[Any]) -> None:
        self._instruments.attach(model, optimizers, self._options.extras())

    @guarded
    def _show(self) -> None:
        """The loop has begun: the run shows."""
        self._to.open()

    @guarded
    def _waited(self, seconds: float) -> None:
        self._rec.waits.waited(seconds)

    @guarded
    def _served(self, batch: Any, fingerprint: Any) -> None:
        self._rec.served(batch, fingerprint)

    def _begin(self, step: int) -> None:
        """The attempt begins, with what had to wait for it."""
        if self._to.begun:
            return
        self._to.begin(step)
        for event in self._early_events:
            self._to.note(event)
        self._early_events.clear()
        for _ in range(self._early_errors):
            self._to.open().account.count_error()
        self._early_errors = 0

    @guarded
    def _open_phase(self, name: PhaseName, path: Any, text: str) -> Phase:
        self._begin(self._rec.done + 1)
        where = None if path is None else str(path)
        phase = Phase(uuid.uuid4().hex, name, self._rec.done, time.time(), path=where, text=text)
        self._to.note(phase)
        return phase

    @guarded
    def _close_phase(self, phase: Phase | None, took_s: float) -> None:
        if phase is not None:
            self._rec.clock.phase_s += took_s
            self._to.note(replace(phase, end_step=self._rec.done, end_at=time.time()))

    def _sample(self) -> None:
        # Asked for by the user, shown as a phase: not an overhead of watching.
        self.hook_s -= self._answering.sample(self._rec.done, self._rec.tokens_seen)

    def _switched_off(self, name: str, error: Exception) -> None:
        reason = getattr(error, "missing", "")
        why = reason or f"{type(error).__name__}: {error}"
        text = f"signal {name} is switched off: {why}"[:500]
        log.warning("%s", text)
        step = self._recorder.done if self._recorder else 0
        data = {"signal": name} | ({"reason": reason} if reason else {})
        self._note_early(Event("signal_off", step, time.time(), text, data))

    def _tell(self, text: str, data: dict[str, Scalar]) -> None:
        step = self._recorder.done if self._recorder else 0
        self._note_early(Event("note", step, time.time(), text, data))

    def _note_early(self, event: Event) -> None:
        if self._link is not None and self._link.begun:
            self._link.note(event)
        else:
            self._early_events.append(event)

    def _count_error(self) -> None:
        client = self._link.client if self._link else None
        if client is None:
            self._early_errors += 1
        else:
            client.account.count_error()

    @guarded
    def _close(self, status: EndStatus, error: str | None, timeout_s: float = CLOSE_S) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        leave(self)
        if self._exits.terminated:
            status, error = "terminated", None
        self._instruments.detach()
        try:
            self._begin(self._rec.done + 1)
            self._rec.drain()
        finally:
            self._to.end(status, error, self._rec.done, timeout_s)
            self._exits.remove()


class _CallableModule(ModuleType):
    """``from trainer_hooks import watch`` must work even where this module was imported first."""

    def __call__(self, *args: Any, **options: Unpack[WatchOptions]) -> Watch | InertWatch:
        return watch(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
