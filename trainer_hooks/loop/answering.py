"""Sampling answers in the loop: when it fits, as a phase, off where it keeps failing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from trainer_hooks.loop.allowance import Allowance
from trainer_hooks.loop.guard import Errors
from trainer_hooks.loop.options import Options
from trainer_hooks.loop.ranks import cut_by
from trainer_hooks.wire import Event, PhaseName, Record

PART = "answers"


class InPartsError(Exception):
    """One process alone must not ask a model of which it holds a part: it would wait for ever."""


def _is_in_parts(model: Any) -> bool:
    return (
        bool(cut_by(model))
        or hasattr(model, "parameters")
        and any(hasattr(parameter, "placements") for parameter in model.parameters())
    )


class Answering:
    """Asks the watched model the prompts of its set.

    Args:
        phase: opens the phase that the time is booked on.
        note: sends a record.
        switched_off: told once sampling has failed too often.
    """

    def __init__(
        self,
        model: Any,
        options: Options,
        *,
        phase: Callable[[PhaseName], AbstractContextManager[None]],
        note: Callable[[Record], None],
        errors: Errors,
        switched_off: Callable[[str, Exception], None],
    ) -> None:
        self._model = model
        self._prompts = options.prompts
        self._limit_s = options.answers_limit_s
        self._allowance = Allowance(options.answers_share)
        self._phase = phase
        self._note = note
        self._errors = errors
        self._switched_off = switched_off
        self._sampler: Any = None
        self._is_off = options.prompts is None or model is None
        self._is_postponed = False

    def fits(self, step: int) -> bool:
        """Whether it fits into its share of the time so far; while it does not, it stays due."""
        if self._is_off or self._refuses():
            return True
        try:
            fits = self._allowance.allows(lambda: float(self._asked().estimate_s()))
        except Exception:  # asking will say what is wrong
            return True
        if not fits and not self._is_postponed:
            wait_s = self._allowance.wait_s()
            text = f"sampling answers waits about {wait_s:.0f} s to keep to its share of the time"
            self._note(Event("answers_postponed", step, time.time(), text))
        self._is_postponed = not fits
        return fits

    def sample(self, step: int, tokens_seen: int) -> float:
        """Ask now; how long it took (s)."""
        if self._is_off or self._refuses():
            return 0.0
        began_s = time.perf_counter()
        try:
            with self._phase("sampling"):
                answers = self._asked().sample(
                    step, time.time(), tokens_seen, limit_s=self._limit_s
                )
                for answer in answers:
                    self._note(answer)
        except Exception as error:
            if self._errors.note_part(PART, error):
                self._is_off = True
                self._switched_off(PART, error)
        else:
            self._errors.worked(PART)
        took_s = time.perf_counter() - began_s
        self._allowance.spent(took_s)
        return took_s

    def _refuses(self) -> bool:
        """A model in shards is not asked: its layers would wait for the other processes."""
        if self._sampler is None and _is_in_parts(self._model):
            self._is_off = True
            why = "the model is in parts; ask its checkpoints with `watchkeeper sample`"
            self._switched_off(PART, InPartsError(why))
        return self._is_off

    def _asked(self) -> Any:
        if self._sampler is None:
            from trainer_hooks.answers.sampler import Sampler

            self._sampler = Sampler(self._model, self._prompts)
        return self._sampler
