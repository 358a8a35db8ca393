"""Train the small GPT, with or without a fault, with or without a watch.

The same seed and fault give the same losses, bit for bit, whoever watches: that is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainer_hooks.feed.settings import Feed
from trainer_hooks.probe import Probe
from trainer_hooks.zoo.corpus import END_OF_TEXT, standard_library
from trainer_hooks.zoo.faults import fault_class
from trainer_hooks.zoo.faults.base import WEIGHT_DECAY, Fault
from trainer_hooks.zoo.loader import MASKED, Batch
from trainer_hooks.zoo.model import CONTEXT, VOCAB
from trainer_hooks.zoo.rates import PEAK_LR, WARMUP_STEPS
from trainer_hooks.zoo.rates import cosine_lr as cosine_lr

STEPS_AFTER_ONSET = 450
CLIP_NORM = 1.0
PROBE_ROWS = 128
CHECKPOINT_EVERY = 100
PRICE_PER_HOUR = 2.10

MakeWatch = Callable[..., Any]
"""``trainer_hooks.watch`` with its server, run and spool filled in already."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong with a run, and when: ``onset`` and ``end`` are the first and last bad step.

    Both are None where nothing is wrong: for a healthy run and for every control.
    """

    fault: str
    seed: int
    steps: int
    onset: int | None
    end: int | None


def truth(
    fault: str, *, seed: int = 0, onset: int | None = None, steps: int | None = None
) -> Truth:
    """The ground truth of a run that ``run_zoo`` would train with the same arguments.

    Raises:
        ValueError: unknown fault, no step at all, or an onset outside the run.
    """
    kind = fault_class(fault)
    steps = kind.steps if steps is None else steps
    if steps < 1:
        raise ValueError("a run has at least one step")
    if kind.is_control:
        return Truth(fault, seed, steps, None, None)
    first, last = _touched(kind, onset, steps)
    return Truth(fault, seed, steps, first, last)


def _touched(kind: type[Fault], onset: int | None, steps: int) -> tuple[int, int]:
    """The first and last step that a fault or a control touches."""
    first = kind.default_onset if onset is None else onset
    if not 1 <= first <= steps and not kind.is_control:
        raise ValueError(f"onset {first} lies outside the run's steps 1 to {steps}")
    return first, steps if kind.length is None else min(steps, first + kind.length - 1)


def enough_steps(onset: int | None, fault: str = "healthy") -> int:
    """Steps that show a fault from this onset on, and what becomes of the run."""
    usual = fault_class(fault).steps
    return usual if onset is None else max(usual, onset + STEPS_AFTER_ONSET)


def run_zoo(
    fault: str = "healthy",
    *,
    seed: int = 0,
    onset: int | None = None,
    steps: int | None = None,
    watch: MakeWatch | None = None,
    checkpoints: Path | None = None,
) -> list[float]:
    """Train for ``steps`` steps on one thread and return every step's loss (nats per byte).

    Args:
        fault: a name of ``trainer_hooks.zoo.faults.FAULTS``.
        onset: the first spoilt step; None: the fault's own.
        steps: None: the fault's own.
        watch: makes the watch; None trains without one.
        checkpoints: folder for a checkpoint every 100 steps; None writes none.

    Raises:
        ValueError: unknown fault, or an onset outside the run.
    """
    told = truth(fault, seed=seed, onset=onset, steps=steps)
    kind = fault_class(fault)
    spoil = kind(*_touched(kind, onset, told.steps))
    module, _, name = kind.training.partition(":")
    with one_thread():
        torch.manual_seed(seed)
        losses: list[float] = getattr(import_module(module), name)(spoil, told, watch, checkpoints)
    return losses


def train(
    fault: Fault, told: Truth, watch: MakeWatch | None, checkpoints: Path | None
) -> list[float]:
    """The ordinary loop."""
    return Training(fault, told, watch, checkpoints).run()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on one thread inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Training:
    """One run: the parts an ordinary training script has, and a fault in one of them."""

    def __init__(
        self, fault: Fault, told: Truth, watch: MakeWatch | None, checkpoints: Path | None
    ) -> None:
        self.fault = fault
        self.told = told
        self.checkpoints = checkpoints
        corpus = standard_library()
        self.model = fault.model()
        self.loader = fault.loader(corpus, told.seed)
        fault.prepare(self.model, self.loader)
        self.optimizers = fault.optimizers(self.model)
        self.held_out = fault.held_out(corpus, PROBE_ROWS, 1)
        self.watch: Any = None
        if watch is not None:
            settings = self.settings() | {"prompts": fault.prompts(corpus)}
            self.watch = watch(self.model, self.optimizers, **settings)

    def settings(self) -> dict[str, Any]:
        """What the watch is told of the run."""
        probe = self.fault.held_out(standard_library(), PROBE_ROWS, 0)
        return {
            "probe": Probe(
                probe.inputs_BT, probe.targets_BT, vocab=VOCAB, sources=probe.sources or None
            ),
            "kind": self.fault.kind,
            "planned_steps": self.told.steps,
            "price_per_hour": PRICE_PER_HOUR,
            "clip_norm": CLIP_NORM,
            "feed": Feed(
                encode=lambda text: list(text.encode()),
                eos=END_OF_TEXT,
                sources=(lambda batch: batch.sources) if probe.sources else None,
            ),
            "config": {
                "lr": PEAK_LR,
                "weight_decay": WEIGHT_DECAY,
                "clip_norm": CLIP_NORM,
                "warmup_steps": WARMUP_STEPS,
                "schedule": "cosine",
                "batch_rows": self.fault.rows,
                "sequence_length": CONTEXT,
            },
            "seeds": {"torch": self.told.seed, "loader": self.told.seed},
            "answers_share": None,  # a short run is to show some
            "every": {
                "weights": self.fault.weights_every,
                "probe": self.fault.probe_every,
                "answers": self.fault.answers_every,
            },
        }

    def run(self) -> list[float]:
        """Every step's loss."""
        with self.watch or nullcontext():
            batches: Any = self._batches()
            if self.watch is not None:
                batches = self.watch.data(batches)
            return [self._step(step, batch) for step, batch in enumerate(batches, start=1)]

    def _batches(self) -> Iterator[Batch]:
        for step in range(1, self.told.steps + 1):
            yield self.fault.batch(step, self.loader)

    def _step(self, step: int, batch: Batch) -> float:
        self._before(step)
        loss = cross_entropy(self.model(batch.inputs_BT), batch.targets_BT)
        loss = self.fault.loss(step, loss)
        norm = self._update(step, loss)
        if self.watch is not None:
            self.watch.step(loss=loss, tokens=batch.inputs_BT.numel(), grad_norm=norm)
            if step % self.fault.held_out_every == 0:
                self._evaluate(step)
        if self.checkpoints is not None and step % CHECKPOINT_EVERY == 0:
            self._save(step, self.checkpoints / f"step-{step:06d}.pt")
        return float(loss.detach())

    def _before(self, step: int) -> None:
        """A new attempt, an announcement, and the learning rate."""
        if self.fault.resume(step, self.model, self.optimizers) and self.watch is not None:
            self.watch.load_state_dict(self.watch.state_dict())
        text = self.fault.announcement(step)
        if text is not None and self.watch is not None:
            with self.watch.phase("data_mix", text=text):
                pass
        planned = self.fault.rate(step, self.told.steps)
        lr, weight_decay = self.fault.settings(step, planned, WEIGHT_DECAY)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                decay = weight_decay * group.get("decay_scale", 1.0)
                group.update(lr=lr * group.get("lr_scale", 1.0), weight_decay=decay)

    def _update(self, step: int, loss: Tensor) -> Tensor:
        """Backwards, clip, step; the gradient norm before clipping."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        self.fault.before_clip(step, self.model)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.fault.before_update(step, self.model)
        for optimizer in self.optimizers:
            optimizer.step()
        return norm

    def _evaluate(self, step: int) -> None:
        with self.watch.phase("evaluation"), torch.no_grad(), torch.random.fork_rng(devices=[]):
            self.model.train(self.fault.evaluates_in_training_mode(step))
            loss = cross_entropy(self.model(self.held_out.inputs_BT), self.held_out.targets_BT)
            self.model.train()
            self.watch.log_heldout(loss)

    def _save(self, step: int, path: Path) -> None:
        with self.watch.phase("checkpoint", path=str(path)) if self.watch else nullcontext():
            state = {"step": step, "model": self.model.state_dict()}
            if self.watch is not None:
                state["watch"] = self.watch.state_dict()
            torch.save(state, path)


def cross_entropy(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Mean loss of the targets that count."""
    return functional.cross_entropy(
        logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=MASKED
    )
