"""Hugging Face Trainer: ``watch_trainer(trainer, name="tiny")`` before ``trainer.train()``.

Losses are read where they are made, one for every micro-batch: the Trainer's own log shows an
average of several steps in which a NaN may have been replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trainer_hooks.data import find_tokens
from trainer_hooks.loop.inert import InertWatch
from trainer_hooks.watch import Watch, watch

STATE_FILE = "watchkeeper.json"


def watch_trainer(trainer: Any, **options: Any) -> WatchCallback:
    """Watch all that ``trainer.train()`` does.

    Args:
        trainer: a ``transformers.Trainer`` or one derived from it (TRL's are).
        options: those of ``trainer_hooks.watch``. Planned steps, name and configuration are the
            Trainer's where not given; the run is found again through a file in ``output_dir``.
    """
    callback = WatchCallback(options)
    trainer.add_callback(callback)
    _wrap(trainer, "training_step", callback.around_training_step)
    _wrap(trainer, "get_batch_samples", callback.around_batches)
    _wrap(trainer, "evaluate", callback.around_evaluation)
    _wrap(trainer, "train", callback.around_train)
    _wrap(trainer.accelerator, "clip_grad_norm_", callback.around_clipping)
    return callback


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(functools.partial(around, original)))


class WatchCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """What ``watch_trainer`` puts into a Trainer.

    Attributes:
        watch: does nothing before training begins.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.watch: Watch | InertWatch = InertWatch()
        self._options = options
        self._losses: list[Any] = []
        self._tokens = 0
        self._grad_norm: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The watch begins; a resumed run goes on as a new attempt."""
        state_file = Path(args.output_dir) / STATE_FILE
        if not state.global_step:
            state_file.unlink(missing_ok=True)
        defaults = {
            "name": args.run_name or "run",
            "planned_steps": state.max_steps,
            "config": args.to_dict(),
            "state_file": state_file,
        }
        optimizer = given.get("optimizer")
        inner = getattr(optimizer, "optimizer", optimizer)
        self.watch = watch(given.get("model"), inner, **(defaults | self._options))

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """One optimizer step is done: the Trainer scales losses so that they add up to its own."""
        losses, self._losses = self._losses, []
        tokens, self._tokens = self._tokens, 0
        loss = sum(losses) if losses else None
        self.watch.step(loss, tokens or None, self._grad_norm, step=state.global_step)
        self._grad_norm = None

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The loss on the evaluation set, by the weights of this step."""
        logs = given.get("logs") or {}
        if "eval_loss" in logs:
            self.watch.log_heldout(logs["eval_loss"], step=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """A checkpoint was written: the last good one is known."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        with self.watch.phase("checkpoint", path=path):
            pass

    def around_train(self, original: Callable[..., Any], *args: Any, **given: Any) -> Any:
        """How it ended: finished, failed or interrupted."""
        try:
            result = original(*args, **given)
        except BaseException as error:
            self.watch.__exit__(type(error), error, error.__traceback__)
            raise
        self.watch.close()
        return result

    def around_training_step(
        self, original: Callable[..., Any], model: Any, inputs: Any, *args: Any, **given: Any
    ) -> Any:
        """The loss of one micro-batch."""
        tokens = find_tokens(inputs)
        self._tokens += 0 if tokens is None else int(tokens.numel())
        loss = original(model, inputs, *args, **given)
        self._losses.append(loss)
        return loss

    def around_batches(
        self, original: Callable[..., Any], batches: Any, *args: Any, **given: Any
    ) -> Any:
        """The micro-batches of one step: how long they were waited for, and what they are."""
        return original(iter(self.watch.data(batches)), *args, **given)

    def around_evaluation(self, original: Callable[..., Any], *args: Any, **given: Any) -> Any:
        """Time that is not the step's."""
        with self.watch.phase("evaluation"):
            return original(*args, **given)

    def around_clipping(self, original: Callable[..., Any], *args: Any, **given: Any) -> Any:
        """The norm of all gradients before clipping."""
        self._grad_norm = original(*args, **given)
        return self._grad_norm
