"""Train the small GPT, with or without a fault, with or without a watch.

The same seed and fault give the same losses, bit for bit, whoever watches: that is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainer_hooks.probe import Probe
from trainer_hooks.zoo.corpus import standard_library
from trainer_hooks.zoo.faults import fault_class
from trainer_hooks.zoo.faults.base import Fault
from trainer_hooks.zoo.loader import BATCH, Batch, Loader, held_out_rows
from trainer_hooks.zoo.model import CONTEXT, VOCAB, TinyGPT
from trainer_hooks.zoo.prompts import zoo_prompts

STEPS = 800
STEPS_AFTER_ONSET = 450
WARMUP_STEPS = 100
PEAK_LR = 2.5e-3
FINAL_LR_SHARE = 0.1
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
PROBE_ROWS = 128
PROBE_EVERY = 25
WEIGHTS_EVERY = 20
ANSWERS_EVERY = 200
CHECKPOINT_EVERY = 100
HELD_OUT_EVERY = 50
PRICE_PER_HOUR = 2.10

MakeWatch = Callable[..., Any]
"""``trainer_hooks.watch`` with its server, run and spool filled in already."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong with a run, and when: ``onset`` and ``end`` are the first and last bad step.

    Both are None for a healthy run.
    """

    fault: str
    seed: int
    steps: int
    onset: int | None
    end: int | None


def truth(fault: str, *, seed: int = 0, onset: int | None = None, steps: int = STEPS) -> Truth:
    """The ground truth of a run that ``run_zoo`` would train with the same arguments.

    Raises:
        ValueError: unknown fault, no step at all, or an onset outside the run.
    """
    kind = fault_class(fault)
    if steps < 1:
        raise ValueError("a run has at least one step")
    if fault == "healthy":
        return Truth(fault, seed, steps, None, None)
    first = kind.default_onset if onset is None else onset
    if not 1 <= first <= steps:
        raise ValueError(f"onset {first} lies outside the run's steps 1 to {steps}")
    last = steps if kind.length is None else min(steps, first + kind.length - 1)
    return Truth(fault, seed, steps, first, last)


def enough_steps(onset: int | None) -> int:
    """Steps that show a fault from this onset on, and what becomes of the run."""
    return STEPS if onset is None else max(STEPS, onset + STEPS_AFTER_ONSET)


def run_zoo(
    fault: str = "healthy",
    *,
    seed: int = 0,
    onset: int | None = None,
    steps: int = STEPS,
    watch: MakeWatch | None = None,
    checkpoints: Path | None = None,
) -> list[float]:
    """Train for ``steps`` steps on one thread and return every step's loss (nats per byte).

    Args:
        fault: a name of ``trainer_hooks.zoo.faults.FAULTS``.
        onset: the first spoilt step; None: the fault's own.
        watch: makes the watch; None trains without one.
        checkpoints: folder for a checkpoint every 100 steps; None writes none.

    Raises:
        ValueError: unknown fault, or an onset outside the run.
    """
    told = truth(fault, seed=seed, onset=onset, steps=steps)
    spoil = fault_class(fault)(told.onset or steps + 1, told.end or steps + 1)
    with _one_thread():
        torch.manual_seed(seed)
        return _Training(spoil, told, watch, checkpoints).run()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cosine_lr(step: int, steps: int) -> float:
    """Linear warm-up over 100 steps, then a cosine down to a tenth of the peak."""
    if step <= WARMUP_STEPS:
        return PEAK_LR * step / WARMUP_STEPS
    done = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return PEAK_LR * (FINAL_LR_SHARE + (1 - FINAL_LR_SHARE) * fall)


class _Training:
    """One run: the parts an ordinary training script has, and a fault in one of them."""

    def __init__(
        self, fault: Fault, told: Truth, watch: MakeWatch | None, checkpoints: Path | None
    ) -> None:
        corpus = standard_library()
        self.fault = fault
        self.told = told
        self.checkpoints = checkpoints
        self.model = TinyGPT()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY
        )
        self.loader = Loader(corpus.train, told.seed)
        self.held_out = held_out_rows(corpus.held_out, PROBE_ROWS, seed=1)
        self.watch = self._start(watch, held_out_rows(corpus.held_out, PROBE_ROWS))

    def _start(self, watch: MakeWatch | None, probe: Batch) -> Any:
        if watch is None:
            return None
        return watch(
            self.model,
            self.optimizer,
            probe=Probe(*probe, vocab=VOCAB),
            prompts=zoo_prompts(),
            planned_steps=self.told.steps,
            price_per_hour=PRICE_PER_HOUR,
            config={
                "lr": PEAK_LR,
                "weight_decay": WEIGHT_DECAY,
                "clip_norm": CLIP_NORM,
                "warmup_steps": WARMUP_STEPS,
                "schedule": "cosine",
                "batch_rows": BATCH,
                "sequence_length": CONTEXT,
            },
            seeds={"torch": self.told.seed, "loader": self.told.seed},
            every={
                "weights": WEIGHTS_EVERY,
                "probe": PROBE_EVERY,
                "answers": ANSWERS_EVERY,
            },
        )

    def run(self) -> list[float]:
        with self.watch or nullcontext():
            batches: Any = self._batches()
            if self.watch is not None:
                batches = self.watch.data(batches)
            return [self._step(step, batch) for step, batch in enumerate(batches, start=1)]

    def _batches(self) -> Iterator[Batch]:
        for step in range(1, self.told.steps + 1):
            yield self.fault.batch(step, self.loader)

    def _step(self, step: int, batch: Batch) -> float:
        inputs_BT, targets_BT = batch
        lr, weight_decay = self.fault.settings(step, cosine_lr(step, self.told.steps), WEIGHT_DECAY)
        self.optimizer.param_groups[0].update(lr=lr, weight_decay=weight_decay)
        loss = self.fault.loss(step, _cross_entropy(self.model(inputs_BT), targets_BT))
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        if self.watch is not None:
            self.watch.step(loss=loss, tokens=inputs_BT.numel(), grad_norm=norm)
            if step % HELD_OUT_EVERY == 0:
                self._evaluate()
        if self.checkpoints is not None and step % CHECKPOINT_EVERY == 0:
            self._save(step, self.checkpoints / f"step-{step:06d}.pt")
        return float(loss.detach())

    def _evaluate(self) -> None:
        with self.watch.phase("evaluation"), torch.no_grad():
            loss = _cross_entropy(self.model(self.held_out[0]), self.held_out[1])
            self.watch.log_heldout(loss)

    def _save(self, step: int, path: Path) -> None:
        with self.watch.phase("checkpoint", path=str(path)) if self.watch else nullcontext():
            state = {"step": step, "model": self.model.state_dict()}
            if self.watch is not None:
                state["watch"] = self.watch.state_dict()
            torch.save(state, path)


def _cross_entropy(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    return functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())
