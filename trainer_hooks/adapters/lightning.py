"""Lightning: ``Trainer(callbacks=[WatchCallback(name="tiny")])``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from lightning.pytorch.callbacks import Callback

from trainer_hooks.data import find_tokens
from trainer_hooks.loop.inert import InertWatch
from trainer_hooks.watch import Watch, watch


class WatchCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Watches what a Lightning Trainer trains.

    Args:
        options: those of ``trainer_hooks.watch``. Planned steps are the Trainer's where not given;
            the run is found again through the checkpoint.

    Attributes:
        watch: does nothing before training begins.
    """

    def __init__(self, **options: Any) -> None:
        self.watch: Watch | InertWatch = InertWatch()
        self._options = options
        self._saved: dict[str, Any] = {}
        self._seen_step = 0
        self._validating = ExitStack()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The watch begins; a resumed run goes on as a new attempt."""
        planned = trainer.estimated_stepping_batches
        options: dict[str, Any] = {"scaler": getattr(trainer.precision_plugin, "scaler", None)}
        if 0 < planned < float("inf"):
            options["planned_steps"] = int(planned)
        options |= self._options
        self.watch = watch(pl_module, list(trainer.optimizers), **options)
        self.watch.load_state_dict(self._saved)
        self._seen_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A micro-batch is done, and where it was the step's last one, the optimizer step."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        tokens = find_tokens(batch)
        count = None if tokens is None else int(tokens.numel())
        if loss is not None:
            # Lightning has divided it by the number of micro-batches.
            self.watch.micro(loss.detach() * trainer.accumulate_grad_batches, count)
        if trainer.global_step > self._seen_step:
            self._seen_step = trainer.global_step
            self.watch.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Time that is not the step's."""
        if not trainer.sanity_checking:
            self._validating.enter_context(self.watch.phase("evaluation"))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """The loss on validation data, logged under the customary name."""
        self._validating.close()
        loss = trainer.callback_metrics.get("val_loss")
        if loss is not None and not trainer.sanity_checking:
            self.watch.log_heldout(loss)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """A checkpoint is written; where to, only its callback knows."""
        path = getattr(trainer.checkpoint_callback, "dirpath", None)
        with self.watch.phase("checkpoint", path=path):
            pass

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The run failed, or was interrupted."""
        self.watch.__exit__(type(exception), exception, exception.__traceback__)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The run has ended."""
        self.watch.close()

    def state_dict(self) -> dict[str, Any]:
        """Lightning puts this into its checkpoints."""
        return self.watch.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until training begins."""
        self._saved = dict(state_dict)
