"""Divergence: the loss went up and does not come back."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    Judgement,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.detectors.companions import NEEDS, CompanionParams, Companions
from monitor.detectors.gate import Gate
from monitor.detectors.heat import Heat, HeatGauge, HeatParams
from monitor.detectors.robust import median

LOSS = "loss/train"


@dataclass(frozen=True, slots=True)
class Params:
    """``hot_in_a_row``: a spike that recovers is down again after about 20 steps.
    ``sparse_in_a_row`` over ``sparse_steps``: where a point stands for many steps, fewer are
    enough. ``untrained_in_a_row``: five in a row above the loss the run began with is nothing a
    run comes back from. ``learnt_share``: that counts once it has lost at least three
    tenths of it.
    ``first_points``: what the run began with. ``fresh_steps``: a loss that jumps back when
    memorised repeats end has not diverged. ``calm_z``: as for spikes."""

    hot_in_a_row: int = 20
    sparse_in_a_row: int = 6
    sparse_steps: int = 200
    untrained_in_a_row: int = 5
    learnt_share: float = 0.30
    first_points: int = 8
    fresh_steps: int = 200
    calm_z: float = 3.0
    calm_points: int = 20
    heat: HeatParams = field(default_factory=HeatParams)
    companions: CompanionParams = field(default_factory=CompanionParams)


@dataclass(slots=True)
class _Memory:
    """``run_*``: of the hot points in a row. ``first``: the losses the run began with."""

    first: list[float] = field(default_factory=list)
    run_points: int = 0
    run_step: int | None = None
    run_at: float | None = None
    fresh: bool = False
    above_first: int = 0
    open: bool = False
    level: float = 0.0
    calm: int = 0
    causes: list[dict[str, Any]] = field(default_factory=list)
    last_step: int | None = None
    interval: int = 1


class Divergence(Detector):
    """Critical: the loss is hot many points in a row, or above where the run began."""

    name: ClassVar[str] = "divergence"
    title: ClassVar[str] = "divergence"
    needs: ClassVar[tuple[str, ...]] = (LOSS, *NEEDS)
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=20)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._gate = Gate()
        self._gauge = HeatGauge(self.params.heat)
        self._companions = Companions(self.params.companions)
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Count hot losses in a row; nothing is learnt from them."""
        self._companions.see(frame)
        if self._gate.enter(frame) or self._companions.mixed_at(frame.step):
            self._gauge.forget()
            self._memory = _Memory(first=self._memory.first)
        loss = frame.values.get(LOSS)
        if loss is None or not math.isfinite(loss):
            return []
        memory = self._memory
        heat = self._gauge.see(loss, learn=memory.run_points == 0 and not memory.open)
        self._note(frame, loss, heat)
        warm = self._gate.steps_to_go(frame.step)
        if heat is None or warm:
            return [self._too_early(frame, warm)]
        return self._judge(frame, heat)

    def _note(self, frame: StepFrame, loss: float, heat: Heat | None) -> None:
        memory = self._memory
        if len(memory.first) < self.params.first_points:
            memory.first.append(loss)
        if memory.last_step is not None:
            memory.interval = max(frame.step - memory.last_step, 1)
        memory.last_step = frame.step
        if heat is None or not heat.hot:
            memory.run_points = memory.above_first = 0
            return
        if memory.run_points == 0 and not memory.open:
            memory.run_step, memory.run_at, memory.level = frame.step, frame.t, heat.level
            within = self.params.fresh_steps
            memory.fresh = self._companions.repeats_ended_by(frame.step, within)
        memory.run_points += 1
        begun = median(memory.first)
        learnt = heat.level < (1.0 - self.params.learnt_share) * begun
        memory.above_first = memory.above_first + 1 if learnt and loss > begun else 0

    def _judge(self, frame: StepFrame, heat: Heat) -> list[Verdict]:
        memory, params = self._memory, self.params
        reason = self._reason(frame.step)
        if memory.open:
            calm = heat.z < params.calm_z or heat.loss - heat.level < heat.limit / 2
            memory.calm = memory.calm + 1 if calm else 0
            if memory.calm >= params.calm_points:
                memory.open = False
            if calm:
                return [self._verdict(frame, "calm", "back_to_usual", None)]
            return [self._bad(frame, heat, reason or "stays_high")]
        if reason and not memory.fresh:
            memory.open, memory.calm = True, 0
            onset = memory.run_step if memory.run_step is not None else frame.step
            memory.causes = [asdict(cause) for cause in self._companions.causes(onset)]
            return [self._bad(frame, heat, reason)]
        return [] if heat.hot else [self._verdict(frame, "calm", "as_usual", None)]

    def _reason(self, step: int) -> str:
        memory, params = self._memory, self.params
        if memory.above_first >= params.untrained_in_a_row:
            return "worse_than_untrained"
        long = memory.run_step is not None and step - memory.run_step >= params.sparse_steps
        fewest = params.sparse_in_a_row if long else params.hot_in_a_row
        return "hot_in_a_row" if memory.run_points >= fewest else ""

    def _too_early(self, frame: StepFrame, warm: int) -> Verdict:
        steps = max(warm, self._gauge.points_missing * self._memory.interval, 1)
        evidence = Evidence(
            "warm_up", self.version, series=(LOSS,), summary=f"needs about {steps:,} more steps"
        )
        return self._verdict(frame, "cannot_tell", "warm_up", evidence)

    def _bad(self, frame: StepFrame, heat: Heat, reason: str) -> Verdict:
        memory, onset = self._memory, self._memory.run_step or frame.step
        begun = median(memory.first)
        numbers = [
            ("train loss", heat.loss, "nats", f"was {memory.level:.3f} before"),
            ("hot points in a row", float(memory.run_points), "", "spikes recover within 20"),
        ]
        row = f" ({memory.run_points} points in a row)" if memory.run_points else ""
        worse = f" That is more than the {begun:.3f} it began with." if heat.loss > begun else ""
        evidence = Evidence(
            rule=reason,
            version=self.version,
            value=heat.loss,
            threshold=memory.level + heat.limit,
            unit="nats",
            n=memory.run_points,
            onset_step=onset,
            onset_at=memory.run_at,
            series=(LOSS, "grad_norm/total", "lr/*", "repeat_share"),
            numbers=tuple(numbers),
            summary=f"Train loss {heat.loss:.3f} against {memory.level:.3f} before step "
            f"{onset:,}, and it does not come back{row}.{worse}",
            causes=tuple(Cause(**cause) for cause in memory.causes),
            first_action="stop the run; go back about 100 steps before the onset and leave out the "
            "next 200 to 500 batches; if it comes again, lower the learning rate.",
            clears="20 points in a row within 3 standard deviations of the level before.",
        )
        return self._verdict(frame, "bad", reason, evidence)

    def _verdict(
        self, frame: StepFrame, judgement: Judgement, reason: str, evidence: Evidence | None
    ) -> Verdict:
        severity: Severity = "critical" if judgement == "bad" else "info"
        return Verdict(
            self.name, "", judgement, severity, reason, frame.step, frame.t, frame.attempt,
            self.title, evidence,
        )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "gauge": self._gauge.snapshot(),
            "companions": self._companions.snapshot(),
            "memory": asdict(self._memory),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._gauge.restore(state["gauge"])
        self._companions.restore(state["companions"])
        self._memory = _Memory(**state["memory"])
