"""Slow drift: the loss creeps upwards, too slowly for any spike rule to see."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.companions import SLOW_NEEDS, CompanionParams, Companions
from monitor.detectors.gate import Gate
from monitor.detectors.progress import BlockSeries
from monitor.detectors.robust import mann_kendall, noise_sd
from monitor.detectors.saying import finite, said, unsure
from monitor.domain.log import Floats

LOSS = "loss/train"
HELD_OUT = ("loss/heldout", "loss/probe")


@dataclass(frozen=True, slots=True)
class Params:
    """``block_points``: medians of 50 batches. ``blocks``: fewer have no noise to speak of.
    ``rise_sd``, ``rise_share``: above the mean of the three best blocks by both.
    ``blocks_in_a_row``: three. ``trend_p``, ``step_share``: and creeping: a monotone trend since
    the best block, no single step of which makes half of the rise; a step is other data.
    ``recovered``: and by so much more than any rise the run came back from, to a new best: hard
    rows at the end of every epoch. ``trend_blocks``: it is looked for in so many.
    ``heldout_share``, ``heldout_sd``: a fixed held-out loss, where there is one, must have risen
    above its best by both: batches that only got harder leave it alone. ``memorised_nats``: below
    this, per cents mean nothing. ``kept_evals``: as far as the held-out loss is remembered."""

    block_points: int = 50
    blocks: int = 8
    rise_sd: float = 5.0
    rise_share: float = 0.01
    blocks_in_a_row: int = 3
    trend_p: float = 0.01
    step_share: float = 0.5
    recovered: float = 1.25
    trend_blocks: int = 40
    noise_blocks: int = 160
    heldout_share: float = 0.005
    heldout_sd: float = 3.0
    memorised_nats: float = 0.05
    kept_evals: int = 32
    companions: CompanionParams = field(default_factory=CompanionParams)


@dataclass(slots=True)
class _Memory:
    held_key: str = ""
    held: list[float] = field(default_factory=list)
    held_best: float = math.inf
    in_a_row: int = 0
    best: float = 0.0
    limit: float = 0.0
    lowest: float = math.inf
    recovered: float = 0.0
    open: bool = False
    onset_step: int | None = None
    onset_at: float | None = None


class SlowDrift(Detector):
    """Warns when three blocks in a row lie above the best ones and the loss crept there."""

    name: ClassVar[str] = "slow_drift"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "loss drifts upwards"
    needs: ClassVar[tuple[str, ...]] = (LOSS, *HELD_OUT, *SLOW_NEEDS)
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=2)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._gate = Gate()
        self._companions = Companions(self.params.companions)
        self._blocks = BlockSeries(self.params.block_points)
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge whenever a block of losses is complete; in every phase of the learning rate."""
        self._companions.see(frame)
        if self._gate.enter(frame) or self._companions.mixed_at(frame.step):
            self._blocks = BlockSeries(self.params.block_points)
            self._memory = _Memory()
        self._note_held(frame)
        loss = finite(frame, LOSS)
        if loss is None or self._gate.steps_to_go(frame.step):
            return []
        if not self._blocks.add(frame.step, frame.t, frame.step, loss):
            return []
        if len(self._blocks.losses) < self.params.blocks:
            missing = self.params.blocks - len(self._blocks.losses)
            span = self._blocks.steps[-1] - self._blocks.steps[0]
            per_block = span / max(len(self._blocks.losses) - 1, 1) or self.params.block_points
            return [unsure(self, frame, f"needs about {int(missing * per_block):,} more steps")]
        return self._judge(frame)

    def _note_held(self, frame: StepFrame) -> None:
        memory = self._memory
        for key in HELD_OUT:
            value = finite(frame, key)
            if value is not None and memory.held_key in ("", key):
                memory.held_key = key
                memory.held.append(value)
                del memory.held[: -self.params.kept_evals]
                memory.held_best = min(memory.held_best, value)
                return

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        memory, params = self._memory, self.params
        loss_N = np.asarray(self._blocks.losses[-params.noise_blocks :])
        self._note_recovery(loss_N)
        if not memory.open:
            # While it is open, the drift must not become what is usual.
            memory.best = float(np.sort(loss_N)[:3].mean())
            sd = noise_sd(loss_N)
            memory.limit = max(
                params.rise_sd * sd, params.rise_share * abs(memory.best),
                params.recovered * memory.recovered,
            )  # fmt: skip
        above = float(loss_N[-1]) > memory.best + memory.limit
        memory.in_a_row = memory.in_a_row + 1 if above else 0
        if memory.open and above:
            return [self._bad(frame)]
        if memory.in_a_row >= params.blocks_in_a_row and self._is_drift(loss_N.tolist()):
            self._open(loss_N.tolist())
            return [self._bad(frame)]
        if above:
            return []
        if memory.open and float(loss_N[-1]) > memory.best + memory.limit / 2:
            return [self._bad(frame)]
        memory.open = False
        return [said(self, frame, "calm", "info", "no_drift")]

    def _note_recovery(self, loss_N: Floats) -> None:
        """A new best: how far above the old one the run had crept just before it."""
        memory, now = self._memory, float(loss_N[-1])
        if now >= memory.lowest:
            return
        if len(loss_N) > 3 and math.isfinite(memory.lowest):
            crept = float(loss_N[-3:-1].mean()) - memory.lowest
            memory.recovered = max(memory.recovered, crept)
        memory.lowest = now

    def _is_drift(self, losses: list[float]) -> bool:
        params = self.params
        since = losses[losses.index(min(losses)) :]
        if self._memory.best < params.memorised_nats or len(since) < 2:
            return False
        direction, p = mann_kendall(since[-params.trend_blocks :])
        rise = float(np.mean(losses[-3:])) - self._memory.best
        largest = float(np.max(np.diff(since)))
        creeps = direction > 0 and p < params.trend_p and largest < params.step_share * rise
        return creeps and self._held_out_agrees()

    def _held_out_agrees(self) -> bool:
        memory, params = self._memory, self.params
        if len(memory.held) < 4:
            return True  # too few values to say anything against it
        noise = params.heldout_sd * noise_sd(np.asarray(memory.held))
        limit = max(params.heldout_share * memory.held_best, noise)
        return memory.held[-1] > memory.held_best + limit

    def _open(self, losses: list[float]) -> None:
        """It began after the last block that was still as good as the best."""
        memory, blocks = self._memory, self._blocks
        memory.open = True
        good = memory.best + memory.limit / 5
        index = len(losses) - 1
        while index > 0 and losses[index - 1] > good:
            index -= 1
        index += len(blocks.losses) - len(losses)
        memory.onset_step, memory.onset_at = blocks.steps[index], blocks.times[index]

    def _bad(self, frame: StepFrame) -> Verdict:
        memory, now = self._memory, self._blocks.losses[-1]
        onset = memory.onset_step if memory.onset_step is not None else frame.step
        steps = max(frame.step - onset, 1)
        rate = 1000.0 * (now - memory.best) / steps
        numbers = [
            ("train loss (median)", now, "nats", f"best {memory.best:.3f}"),
            ("rise per 1,000 steps", rate, "nats", ""),
        ]
        held = ""
        if len(memory.held) >= 4:
            numbers.append(
                (memory.held_key, memory.held[-1], "nats", f"best {memory.held_best:.3f}")
            )
            held = f" {memory.held_key} rose to {memory.held[-1]:.3f} from {memory.held_best:.3f}."
        evidence = Evidence(
            rule="creep",
            version=self.version,
            value=now,
            threshold=memory.best + memory.limit,
            unit="nats",
            n=len(self._blocks.losses),
            onset_step=onset,
            onset_at=memory.onset_at,
            series=(LOSS, *HELD_OUT, "lr/*", "logsumexp/probe", "weight_norm/head"),
            numbers=tuple(numbers),
            summary=f"Train loss crept from {memory.best:.3f} to {now:.3f} since step {onset:,}, "
            f"without any single jump.{held}",
            causes=self._companions.causes(onset),
            first_action="look at the norm of the head and at logsumexp (a z-loss of 1e-4 cured "
            "such a creep in public runs), and at the data of these steps.",
            clears="two blocks in a row near the best ones.",
        )
        return said(self, frame, "bad", "warning", "creep", evidence=evidence)

    def snapshot(self) -> dict[str, Any]:
        memory = asdict(self._memory)
        for name in ("held_best", "lowest"):
            memory[name] = None if math.isinf(memory[name]) else memory[name]
        return {
            "gate": self._gate.snapshot(),
            "companions": self._companions.snapshot(),
            "blocks": asdict(self._blocks),
            "memory": memory,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._companions.restore(state["companions"])
        self._blocks = BlockSeries.restored(state["blocks"])
        memory = dict(state["memory"])
        for name in ("held_best", "lowest"):
            memory[name] = math.inf if memory[name] is None else memory[name]
        self._memory = _Memory(**memory)
