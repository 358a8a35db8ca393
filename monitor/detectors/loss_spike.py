"""A loss spike: the loss stands far above its recent past, and not for one batch only."""

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
from monitor.detectors.level import Level, LevelGauge, LevelParams
from monitor.detectors.robust import median

LOSS = "loss/train"


@dataclass(frozen=True, slots=True)
class Params:
    """``hot_of``: a lone hot batch is data; three of the last five are the model, and two
    where a gradient norm beyond ten times its median agrees.
    ``calm_z``, ``calm_points``: back in its own noise for twenty points in a row.
    ``new_level_points``: a loss that stays up so long has found another level: what is usual is
    learnt anew. ``causes_points``: its causes are looked for in the first few points only.
    Heat and gradients: see there."""

    hot_of: tuple[int, int] = (3, 5)
    hot_with_gradient: tuple[int, int] = (2, 5)
    calm_z: float = 3.0
    calm_points: int = 20
    new_level_points: int = 300
    causes_points: int = 5
    heat: HeatParams = field(default_factory=HeatParams)
    level: LevelParams = field(default_factory=LevelParams)
    companions: CompanionParams = field(default_factory=CompanionParams)


@dataclass(slots=True)
class _Memory:
    """``recent``: [step, time, hot, loss] of the last few points; the rest is of the open spike.
    ``by_level``: their median tells it, none of them alone."""

    recent: list[list[float]] = field(default_factory=list)
    onset_step: int | None = None
    onset_at: float | None = None
    level: float = 0.0
    peak: float = 0.0
    by_level: bool = False
    points: int = 0
    calm: int = 0
    causes: list[dict[str, Any]] = field(default_factory=list)
    last_step: int | None = None
    interval: int = 1


class LossSpike(Detector):
    """Warns at three hot points of five, or at two with a gradient ten times usual."""

    name: ClassVar[str] = "loss_spike"
    version: ClassVar[int] = 3
    title: ClassVar[str] = "loss spike"
    needs: ClassVar[tuple[str, ...]] = (LOSS, *NEEDS)
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=20)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._gate = Gate()
        self._gauge = HeatGauge(self.params.heat)
        self._levels = LevelGauge(self.params.level)
        self._companions = Companions(self.params.companions)
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each loss against the points before it."""
        self._companions.see(frame)
        if self._gate.enter(frame) or self._companions.mixed_at(frame.step):
            self._gauge.forget()
            self._levels.forget()
            self._memory = _Memory()
        loss = frame.values.get(LOSS)
        if loss is None or not math.isfinite(loss):
            return []
        learn = self._memory.onset_step is None
        heat, level = self._gauge.see(loss, learn=learn), self._levels.see(loss, learn=learn)
        self._note(frame, heat)
        warm = self._gate.steps_to_go(frame.step)
        if heat is None or warm:
            return [self._too_early(frame, warm)]
        if self._memory.onset_step is not None:
            return self._judge_open(frame, heat, level)
        if heat.hot and self._is_spike():
            self._open(heat)
            return [self._bad(frame, heat)]
        if level is not None and level.is_up:
            self._open_by_level(level)
            return [self._bad(frame, heat)]
        return [] if heat.hot else [self._verdict(frame, "calm", "as_usual", None)]

    def _note(self, frame: StepFrame, heat: Heat | None) -> None:
        memory = self._memory
        if memory.last_step is not None:
            memory.interval = max(frame.step - memory.last_step, 1)
        memory.last_step = frame.step
        hot = float(heat is not None and heat.hot)
        memory.recent.append([float(frame.step), frame.t, hot, frame.values[LOSS]])
        del memory.recent[: -self.params.level.points]

    def _is_spike(self) -> bool:
        recent = self._memory.recent[-self.params.hot_of[1] :]
        fewest, of = self.params.hot_with_gradient
        if sum(point[2] for point in recent) >= self.params.hot_of[0]:
            return True
        of_gradient = self._companions.grad_ratio > self.params.companions.grad_hot
        return of_gradient and sum(point[2] for point in recent[-of:]) >= fewest

    def _open(self, heat: Heat) -> None:
        memory = self._memory
        memory.by_level = False
        latest = memory.recent[-self.params.hot_of[1] :]
        first = next(point for point in latest if point[2])
        memory.onset_step, memory.onset_at = int(first[0]), first[1]
        memory.level, memory.peak = heat.level, heat.loss
        memory.points = memory.calm = 0

    def _open_by_level(self, level: Level) -> None:
        memory = self._memory
        above = [p for p in memory.recent if p[3] > level.level + level.limit / 2]
        first = above[0] if above else memory.recent[-1]
        memory.onset_step, memory.onset_at = int(first[0]), first[1]
        memory.level, memory.peak = level.level, max(point[3] for point in memory.recent)
        memory.by_level, memory.points, memory.calm = True, 0, 0

    def _is_calm(self, heat: Heat, level: Level | None) -> bool:
        if self._memory.by_level:
            return level is None or level.now - level.level < level.limit / 2
        back = not heat.hot and heat.loss - heat.level < heat.limit / 2
        return heat.z < self.params.calm_z or back

    def _judge_open(self, frame: StepFrame, heat: Heat, level: Level | None) -> list[Verdict]:
        memory, params = self._memory, self.params
        memory.points += 1
        memory.peak = max(memory.peak, heat.loss)
        calm = self._is_calm(heat, level)
        memory.calm = memory.calm + 1 if calm else 0
        if memory.calm >= params.calm_points:
            memory.onset_step = memory.onset_at = None
            return [self._verdict(frame, "calm", "back_to_usual", None)]
        if memory.points >= params.new_level_points and not calm:
            # Twenty points of the new level will end it: they are calm while it is learnt.
            self._gauge.forget()
            self._levels.forget()
            self._memory = _Memory(last_step=memory.last_step, interval=memory.interval)
            return [self._verdict(frame, "calm", "new_level", None)]
        if calm:
            return [self._verdict(frame, "calm", "back_to_usual", None)]
        return [self._bad(frame, heat)]

    def _too_early(self, frame: StepFrame, warm: int) -> Verdict:
        steps = max(warm, self._gauge.points_missing * self._memory.interval, 1)
        evidence = Evidence(
            "warm_up", self.version, series=(LOSS,), summary=f"needs about {steps:,} more steps"
        )
        return self._verdict(frame, "cannot_tell", "warm_up", evidence)

    def _bad(self, frame: StepFrame, heat: Heat) -> Verdict:
        memory, onset = self._memory, self._memory.onset_step or frame.step
        grad = self._companions.grad_ratio
        numbers = [("train loss", heat.loss, "nats", f"was {memory.level:.3f} before")]
        if grad > 0.0:
            numbers.append(("gradient norm over its median", grad, "", "healthy: below 10"))
        if memory.points <= self.params.causes_points:
            # Later points tell how it went on, not how it began.
            memory.causes = [asdict(cause) for cause in self._companions.causes(onset)]
        evidence = Evidence(
            rule="level_up" if memory.by_level else "hot_points",
            version=self.version,
            value=heat.loss,
            threshold=memory.level + heat.limit,
            unit="nats",
            n=memory.points + 1,
            onset_step=onset,
            onset_at=memory.onset_at,
            series=(LOSS, "grad_norm/total", "lr/*", "repeat_share"),
            numbers=tuple(numbers),
            summary=f"Train loss {heat.loss:.3f} (highest {memory.peak:.3f}) against "
            f"{memory.level:.3f} before step {onset:,}: {self._how_far(heat)}.",
            causes=tuple(Cause(**cause) for cause in memory.causes),
            first_action="watch whether it comes back within some 50 steps; if not, go back about "
            "100 steps and leave out the next 200 to 500 batches.",
            clears="20 points in a row within 3 standard deviations of the level before.",
        )
        return self._verdict(frame, "bad", "hot_points", evidence)

    def _how_far(self, heat: Heat) -> str:
        if not self._memory.by_level:
            return f"{heat.z:.0f} standard deviations of its own noise"
        latest = median([point[3] for point in self._memory.recent])
        return f"the median of the last {len(self._memory.recent)} is {latest:.3f}"

    def _verdict(
        self, frame: StepFrame, judgement: Judgement, reason: str, evidence: Evidence | None
    ) -> Verdict:
        severity: Severity = "warning" if judgement == "bad" else "info"
        return Verdict(
            self.name, "", judgement, severity, reason, frame.step, frame.t, frame.attempt,
            self.title, evidence,
        )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "gauge": self._gauge.snapshot(),
            "levels": self._levels.snapshot(),
            "companions": self._companions.snapshot(),
            "memory": asdict(self._memory),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._gauge.restore(state["gauge"])
        self._levels.restore(state["levels"])
        self._companions.restore(state["companions"])
        self._memory = _Memory(**state["memory"])
