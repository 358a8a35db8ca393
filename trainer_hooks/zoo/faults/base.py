"""What a fault is: a wrapper round the loader, the optimizer's settings or the loss.

``onset`` is the first step that it touches and ``end`` the last one: the ground truth by which
detectors are judged. Steps count from 1, as the watch counts them. A control changes something as
well, and nothing is wrong: there detectors have to stay quiet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from trainer_hooks.zoo.loader import BATCH, Batch, Loader, MixedLoader, held_out_rows
from trainer_hooks.zoo.model import TinyGPT
from trainer_hooks.zoo.rates import PEAK_LR, cosine_lr

if TYPE_CHECKING:
    from trainer_hooks.answers.prompts import PromptSet
    from trainer_hooks.wire import RunKind
    from trainer_hooks.zoo.corpus import Corpus

PLAIN_TRAINING = "trainer_hooks.zoo.run:train"
WEIGHT_DECAY = 0.1


class Fault:
    """A run without a fault; the faults override what they spoil.

    Class attributes:
        default_onset: the first spoilt step, where nobody chooses one.
        length: how many steps it lasts; None: to the end of the run.
        steps: how many steps show it.
        is_control: nothing is wrong with the run, whatever happens in it.
        kind: the kind of run.
        training: ``module:function`` that trains it, where the ordinary loop does not.
        rows: of a batch.
        answers_every, weights_every, probe_every, held_out_every: steps between two samplings, two
            samples of the weights, two probes, two evaluations of the loop's own.
    """

    default_onset: ClassVar[int] = 301
    length: ClassVar[int | None] = None
    steps: ClassVar[int] = 800
    is_control: ClassVar[bool] = False
    kind: ClassVar[RunKind] = "pretrain"
    training: ClassVar[str] = PLAIN_TRAINING
    rows: ClassVar[int] = BATCH
    answers_every: ClassVar[int] = 200
    weights_every: ClassVar[int] = 20
    probe_every: ClassVar[int] = 25
    held_out_every: ClassVar[int] = 50

    def __init__(self, onset: int, end: int) -> None:
        self.onset = onset
        self.end = end

    def active(self, step: int) -> bool:
        """Whether this step is spoilt."""
        return self.onset <= step <= self.end

    # What a run is made of.

    def model(self) -> nn.Module:
        """The model, its weights drawn from torch's global generator."""
        return TinyGPT()

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """The optimizers; every group's rate is the schedule's times its ``lr_scale``."""
        return [
            torch.optim.AdamW(
                model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY
            )
        ]

    def loader(self, corpus: Corpus, seed: int) -> Loader | MixedLoader:
        """The training data."""
        return Loader(corpus.train, seed)

    def held_out(self, corpus: Corpus, rows: int, seed: int) -> Batch:
        """Rows of held-out data."""
        return held_out_rows(corpus.held_out, rows, seed=seed)

    def prompts(self, corpus: Corpus) -> PromptSet:
        """What the model is asked."""
        from trainer_hooks.zoo.prompts import zoo_prompts

        return zoo_prompts()

    def rate(self, step: int, steps: int) -> float:
        """The schedule's learning rate."""
        return cosine_lr(step, steps)

    def prepare(self, model: nn.Module, loader: Loader | MixedLoader) -> None:
        """Before the run: what came earlier in the model's life."""

    # What a step is made of.

    def batch(self, step: int, loader: Any) -> Batch:
        """The batch that this step gets."""
        drawn: Batch = loader.draw(self.rows)
        return drawn

    def settings(self, step: int, lr: float, weight_decay: float) -> tuple[float, float]:
        """Learning rate and weight decay of this step."""
        return lr, weight_decay

    def loss(self, step: int, loss: Tensor) -> Tensor:
        """The loss that is sent backwards."""
        return loss

    def before_clip(self, step: int, model: nn.Module) -> None:
        """Gradients are there, and not yet clipped."""

    def before_update(self, step: int, model: nn.Module) -> None:
        """Gradients are clipped; the optimizer comes next."""

    def resume(self, step: int, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> bool:
        """Whether the run begins again, as a new attempt, with this step; may change everything."""
        return False

    def announcement(self, step: int) -> str | None:
        """What the loop announces as a change of the data's mix, before this step."""
        return None

    def evaluates_in_training_mode(self, step: int) -> bool:
        """Whether the loop forgot ``model.eval()``."""
        return False
