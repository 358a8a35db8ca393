"""Whether weight decay can hold the norms in this run, and whether the weights still turn."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.detectors.gate import Gate, LrWatch
from monitor.detectors.plateau_causes import NOT_JUDGED
from monitor.detectors.progress import BlockSeries, fit_decay, judge_window
from monitor.detectors.robust import median
from monitor.detectors.saying import by_group, finite, said

LOSSES = ("loss/heldout", "loss/probe", "loss/train")
DECOUPLED = ("adamw",)
"""Optimizers whose equilibrium has a formula here: decay of lr x wd beside Adam's step."""
CONSTRAINED = ("hyperball", "muonh", "adamh")
"""Optimizers that hold the norm by design: there the angle is set by the learning rate alone."""


@dataclass(frozen=True, slots=True)
class Params:
    """``plan_share``: a plan whose sum of lr x wd stays below 1 is shorter than one time constant:
    decay cannot hold the norms within it. ``half``: of the rotation per learning rate at
    ``reference_share`` of the plan. ``groups``: in two hidden groups, or in the only one there is.
    ``samples_in_a_row``: three. ``observed_share``, ``power``: progress is being lost where the
    run since then brought less than half of what the run before it lets expect, and that stands out
    of the noise. ``fewest_blocks``: on either side, for that judgement.
    ``memorised_nats``: below this train loss there is no progress left to lose.
    ``grown``: norms that grew by less do not explain it. ``clear``: hysteresis."""

    plan_share: float = 1.0
    half: float = 0.5
    clear: float = 0.6
    reference_share: float = 0.10
    reference_samples: int = 3
    groups: int = 2
    samples_in_a_row: int = 3
    observed_share: float = 0.5
    power: float = 4.0
    fewest_blocks: int = 8
    grown: float = 1.3
    train_points: int = 16
    memorised_nats: float = 0.05


@dataclass(slots=True)
class _Group:
    """``first``: the samples of the reference, theta / lr; ``now``: the latest ones. ``norms``: the
    weight norm at the reference and now, where it is told."""

    first: list[float] = field(default_factory=list)
    now: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    def ratio(self, samples: int) -> float | None:
        """Rotation per learning rate against its reference; None while that is being made."""
        if len(self.first) < samples or len(self.now) < samples:
            return None
        reference = median(self.first)
        return median(self.now) / reference if reference > 0.0 else None


@dataclass(slots=True)
class _Memory:
    plan_told: bool = False
    key: str = ""
    low: int = 0
    open: bool = False
    onset_step: int | None = None
    onset_at: float | None = None
    train: float | None = None


class EffectiveLrDecay(Detector):
    """A word on the plan, information on rotation lost; a warning only if progress is lost too."""

    name: ClassVar[str] = "effective_lr_decay"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "effective learning rate halved"
    needs: ClassVar[tuple[str, ...]] = (
        "effective_lr/*", "update_ratio/*", "weight_norm/*", "lr/*", *LOSSES,
    )  # fmt: skip
    kinds: ClassVar[tuple[str, ...]] = ("pretrain", "continued", "sft", "other")
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=3)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._gate = Gate()
        self._lr = LrWatch()
        self._groups: dict[str, _Group] = {}
        self._blocks = BlockSeries(1)
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """The plan once the warm-up is over; the rotation whenever it is measured."""
        if self._gate.enter(frame):
            self._blocks.cut(frame.step)
            self._memory.low = 0
        self._lr.see(frame)
        self._note_loss(frame)
        if self._gate.steps_to_go(frame.step) or self._lr.phase in ("unknown", "warmup"):
            return []
        verdicts = [] if self._memory.plan_told else self._tell_plan(frame)
        return verdicts + self._see_rotation(frame)

    def _note_loss(self, frame: StepFrame) -> None:
        """The most telling loss there is: held-out ones take over where they appear."""
        train, memory = finite(frame, "loss/train"), self._memory
        if train is not None:
            # The mean of about the last 20 batches.
            memory.train = train if memory.train is None else memory.train
            memory.train += 0.05 * (train - memory.train)
        for key in LOSSES:
            value = finite(frame, key)
            if value is None:
                continue
            known = self._memory.key
            if known and LOSSES.index(key) > LOSSES.index(known):
                return
            if key != known:
                self._memory.key = key
                train = key == "loss/train"
                self._blocks = BlockSeries(self.params.train_points if train else 1)
            if not self._gate.steps_to_go(frame.step):
                self._blocks.add(frame.step, frame.t, frame.step + 1.0, value)
            return

    # -- the plan --------------------------------------------------------------------------------

    def _config(self, *names: str) -> float | None:
        config = self._facts.facts.get("config") or {}
        for name in names:
            value = config.get(name)
            if isinstance(value, (int, float)) and math.isfinite(value):
                return float(value)
        return None

    def _tell_plan(self, frame: StepFrame) -> list[Verdict]:
        self._memory.plan_told = True
        optimizer = str(self._facts.facts.get("optimizer") or "").lower()
        decay, planned = self._config("weight_decay", "wd"), self._facts.facts.get("planned_steps")
        if decay is None or not planned or not self._lr.peak:
            return []
        if any(name in optimizer for name in CONSTRAINED):
            return []  # the norm is constant by design
        rate, steps = self._lr.peak, int(planned)
        total = rate * decay * steps
        if total >= self.params.plan_share:
            return []
        tau = f"{1.0 / (rate * decay):,.0f} steps" if decay > 0.0 else "infinite"
        evidence = Evidence(
            rule="plan",
            version=self.version,
            value=total,
            threshold=self.params.plan_share,
            onset_step=frame.step,
            onset_at=frame.t,
            series=("weight_norm/total", "effective_lr/*", "lr/*"),
            numbers=(("sum of lr x weight decay", total, "", "1 is one time constant"),),
            summary=f"The sum of lr x weight decay over the plan is at most {total:.2g}: the time "
            f"constant of the norms is {tau}, the run {steps:,}. Decay cannot hold the norms; "
            f"rotation per step will fall as they grow. {self._forecast(optimizer, rate, decay)}",
            causes=(Cause("weight decay and learning rate are small for this run's length", 1, 1),),
            first_action="nothing, if the schedule is meant to act so: growing norms are a second "
            "decay of the learning rate.",
            clears="the end of the run.",
        )
        return [
            # A fact of the plan, nothing that happened: listed with what is known at start.
            said(self, frame, "cannot_tell", "info", "plan", subject="plan",
                 title="weight decay cannot hold the norms in this run", evidence=evidence)
        ]  # fmt: skip

    def _forecast(self, optimizer: str, rate: float, decay: float) -> str:
        if decay <= 0.0:
            return "Without decay there is no equilibrium."
        if optimizer not in DECOUPLED:
            return "The equilibrium is unknown for this optimizer."
        beta = self._config("beta1", "adam_beta1")
        beta = 0.9 if beta is None else beta
        angle = math.sqrt(2.0 * rate * decay * (1.0 - beta) / (1.0 + beta))
        return f"At equilibrium each step would turn a matrix by {angle:.2g} rad."

    # -- rotation --------------------------------------------------------------------------------

    def _see_rotation(self, frame: StepFrame) -> list[Verdict]:
        rate = self._lr.value
        if not rate or self._lr.phase in ("tail", "cut"):
            return []
        if self._memory.train is not None and self._memory.train < self.params.memorised_nats:
            return []
        turned = by_group(frame, "effective_lr") or by_group(frame, "update_ratio")
        turned = {name: v for name, v in turned.items() if name not in NOT_JUDGED and v > 0.0}
        if not turned:
            return []
        norms = by_group(frame, "weight_norm")
        for name, angle in turned.items():
            group = self._groups.setdefault(name, _Group())
            self._note(frame, group, angle / rate)
            if group.first and name in norms:
                group.norms = [group.norms[0] if group.norms else norms[name], norms[name]]
        return self._judge(frame)

    def _note(self, frame: StepFrame, group: _Group, per_rate: float) -> None:
        params, planned = self.params, self._facts.facts.get("planned_steps")
        age = frame.step - (self._gate.run_first_step or 0)
        if planned and age < params.reference_share * planned:
            return
        if len(group.first) < params.reference_samples:
            group.first.append(per_rate)
        group.now.append(per_rate)
        del group.now[: -params.reference_samples]

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        params, memory = self.params, self._memory
        ratios = {
            name: ratio
            for name, group in self._groups.items()
            if (ratio := group.ratio(params.reference_samples)) is not None
        }
        if not ratios:
            return []
        need = min(params.groups, len(ratios))
        lost = {name: ratio for name, ratio in ratios.items() if ratio < params.half}
        memory.low = memory.low + 1 if len(lost) >= need else 0
        if memory.low == 1:
            memory.onset_step, memory.onset_at = frame.step, frame.t
        if memory.low >= params.samples_in_a_row:
            memory.open = True
            return [self._bad(frame, lost)]
        if memory.open and sum(ratio < params.clear for ratio in ratios.values()) >= need:
            return []
        memory.open = False
        return [said(self, frame, "calm", "info", "turns_as_before")]

    def _lost_progress(self) -> str:
        """Words for progress that is being lost, or nothing."""
        params, onset = self.params, self._memory.onset_step or 0
        t_N, loss_N = self._blocks.arrays()
        after = sum(step >= onset for step in self._blocks.steps)
        if min(after, len(t_N) - after) < params.fewest_blocks:
            return ""
        window = judge_window(t_N, loss_N, after, fit_decay(t_N[:-after], loss_N[:-after]))
        if window is None or window.power < params.power or window.z < params.power:
            return ""
        if window.observed > params.observed_share * window.expected:
            return ""
        return (
            f"{self._memory.key} fell {window.observed:.3f} where {window.expected:.3f} was to be "
            "expected"
        )

    def _bad(self, frame: StepFrame, lost: dict[str, float]) -> Verdict:
        memory, progress = self._memory, self._lost_progress()
        worst = min(lost, key=lambda name: lost[name])
        groups = ", ".join(sorted(lost))
        told = (
            f" Meanwhile {progress}." if progress else " The loss falls as expected all the same."
        )
        after = sum(step >= (memory.onset_step or 0) for step in self._blocks.steps)
        if not progress and after < self.params.fewest_blocks:
            told = " Whether that costs progress cannot be told yet."
        evidence = Evidence(
            rule="rotation_per_lr",
            version=self.version,
            value=lost[worst],
            threshold=self.params.half,
            unit="ratio",
            n=len(lost),
            onset_step=memory.onset_step,
            onset_at=memory.onset_at,
            series=tuple(f"effective_lr/{name}" for name in sorted(lost)) + ("lr/*", memory.key),
            numbers=tuple(
                (f"rotation per lr of {name}", lost[name], "", "of what it was early on")
                for name in sorted(lost)[:3]
            ),
            summary=f"Per unit of learning rate, {groups} turn at most {100 * lost[worst]:.0f} % "
            f"as far a step as they did early on.{told}",
            causes=(self._cause(list(lost)),),
            first_action="compare the weight norms with the beginning; a higher learning rate or "
            "more decay restores the rotation."
            if progress
            else "nothing while the loss falls as expected.",
            clears=f"three samples above {self.params.clear:g} of the early rotation.",
        )
        severity: Severity = "warning" if progress else "info"
        return said(self, frame, "bad", severity, "rotation_per_lr", evidence=evidence)

    def _cause(self, lost: list[str]) -> Cause:
        grown = [self._groups[name].norms[1] / self._groups[name].norms[0]
                 for name in lost
                 if self._groups[name].norms and self._groups[name].norms[0] > 0.0]  # fmt: skip
        text = "the weight norms outgrew the learning rate"
        if not grown:
            return Cause(text, 1, 2, "weight norms are not told")
        why = f"norms x{median(grown):.2f} since"
        if median(grown) >= self.params.grown:
            return Cause(text, 2, 2, why)
        text = (
            "the updates shrank, not the norms that grew: low precision, or the optimizer's state"
        )
        return Cause(text, 1, 2, why)

    # -- memory ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "lr": self._lr.snapshot(),
            "groups": {name: asdict(group) for name, group in self._groups.items()},
            "blocks": asdict(self._blocks),
            "memory": asdict(self._memory),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._lr = LrWatch(**state["lr"])
        self._groups = {name: _Group(**group) for name, group in state["groups"].items()}
        self._blocks = BlockSeries.restored(state["blocks"])
        self._memory = _Memory(**state["memory"])
