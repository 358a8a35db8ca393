"""Weight norms that run away, jump or collapse, per parameter group."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import (
    WARMUP_POINTS,
    WARMUP_STEPS,
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
from monitor.detectors.gate import Gate
from monitor.detectors.saying import by_group

PREFIX = "weight_norm/"


@dataclass(frozen=True, slots=True)
class Params:
    """``exponent``: d ln|W| / d ln t; 0.5 is a random walk, healthy runs fall from 0.7 towards 0,
    real blow-ups stay above 0.8. ``look_back``: the exponent is taken between t and t / 1.6, a span
    long enough for the slope and short enough to be of now. ``spacing``: samples that count lie
    this share of t apart, else three of them are one. ``growth``: nor below 3x the
    post-warm-up minimum: groups that start small find their size by growing 2.5x in healthy runs,
    real blow-ups reached 5x to 20x. ``jump``: between two samples no training explains
    this. ``collapse``: a tenth of what it was is a dead net. ``late_share``: of the plan, before
    which every group may still be finding its size; ``late_groups`` start at zero by design, and
    have ``late_steps_unplanned`` for it where there is no plan. ``raised``: a learning rate that
    rises by this factor between two steps after the warm-up was raised by somebody;
    ``near_steps``: at most so long before a jump."""

    exponent: float = 0.8
    exponent_clear: float = 0.6
    samples_in_a_row: int = 3
    look_back: float = 1.6
    spacing: float = 0.10
    growth: float = 3.0
    jump: float = 1.3
    collapse: float = 0.1
    late_share: float = 0.10
    late_steps_unplanned: int = 1000
    late_groups: tuple[str, ...] = ("lora",)
    kept_samples: int = 128
    raised: float = 1.3
    near_steps: int = 100


@dataclass(slots=True)
class _Group:
    """A group's samples (step, time, norm), at least 2 % of t apart, and what follows of them."""

    samples: list[list[float]] = field(default_factory=list)
    lowest: float | None = None
    reference: float | None = None
    high_in_a_row: int = 0
    counted_step: float = 0.0
    onset_step: int | None = None
    onset_at: float | None = None
    from_zero: bool = False


class NormBlowup(Detector):
    """Critical on growth exponents above 0.8, warning on a jump, critical on a collapse."""

    name: ClassVar[str] = "norm_blowup"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "weight norm blow-up"
    needs: ClassVar[tuple[str, ...]] = ("weight_norm/*", "lr/*")
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=3)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._gate = Gate()
        self._groups: dict[str, _Group] = {}
        self._rate = 0.0
        self._raised: list[float] = []

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each group whose norm this step brings."""
        if self._gate.enter(frame):
            self._rewind(frame.step)
        self._note_rate(frame)
        verdicts: list[Verdict] = []
        for key, norm in frame.values.items():
            if key.startswith(PREFIX) and math.isfinite(norm):
                verdicts += self._take(frame, key.removeprefix(PREFIX), norm)
        return verdicts

    def _note_rate(self, frame: StepFrame) -> None:
        """A learning rate that somebody raised: [step, before, after]; no warm-up does that."""
        rate = max(by_group(frame, "lr").values(), default=0.0)
        warm = frame.step - (self._gate.run_first_step or 0) < WARMUP_STEPS
        if not warm and self._rate > 0.0 and rate > self.params.raised * self._rate:
            self._raised = [float(frame.step), self._rate, rate]
        self._rate = rate or self._rate

    def _rewind(self, first_step: int) -> None:
        """A new attempt goes on from samples it owns; what lies beyond its start never was."""
        for group in self._groups.values():
            group.samples = [s for s in group.samples if s[0] < first_step]
            group.high_in_a_row, group.onset_step, group.onset_at = 0, None, None

    def _take(self, frame: StepFrame, name: str, norm: float) -> list[Verdict]:
        group = self._groups.setdefault(name, _Group(from_zero=norm < 1e-6))
        previous = group.samples[-1] if group.samples else None
        start = self._gate.run_first_step or 0
        t = frame.step - start
        if not previous or frame.step - previous[0] >= 0.02 * t:
            group.samples.append([float(frame.step), frame.t, norm])
            del group.samples[: -self.params.kept_samples]
        if t < WARMUP_STEPS or self._still_growing_by_design(name, group, frame.step):
            return self._too_early(frame, name, WARMUP_STEPS - t)
        group.lowest = min(norm, group.lowest if group.lowest is not None else norm)
        group.reference = norm if group.reference is None else group.reference
        if len(group.samples) < WARMUP_POINTS:
            return self._too_early(frame, name, 1)
        return self._judge(frame, name, group, norm, previous)

    def _still_growing_by_design(self, name: str, group: _Group, step: int) -> bool:
        if not group.from_zero and name not in self.params.late_groups:
            return False
        return self._is_early(step, self.params.late_steps_unplanned)

    def _is_early(self, step: int, unplanned: int = 0) -> bool:
        planned = self._facts.facts.get("planned_steps")
        limit = self.params.late_share * planned if planned else unplanned
        return bool(step - (self._gate.run_first_step or 0) < limit)

    def _too_early(self, frame: StepFrame, name: str, steps: int) -> list[Verdict]:
        summary = f"needs about {max(steps, 1)} more steps"
        evidence = Evidence("warm_up", self.version, summary=summary)
        return [self._verdict(frame, name, "cannot_tell", "info", "warm_up", evidence)]

    def _judge(
        self, frame: StepFrame, name: str, group: _Group, norm: float, previous: list[float] | None
    ) -> list[Verdict]:
        start = self._gate.run_first_step or 0
        if group.reference and norm < self.params.collapse * group.reference:
            return [self._bad(frame, name, group, "critical", "collapse", norm, group.reference)]
        if previous and self._jumped(previous, norm, frame.step - start, start):
            self._restart(group, frame, norm)
            return [self._bad(frame, name, group, "warning", "jump", norm, previous[2])]
        if self._gate.steps_to_go(frame.step) or self._is_early(frame.step):
            return []
        exponent = self._exponent(group, frame.step, norm, start)
        if exponent is None:
            return []
        return self._judge_growth(frame, name, group, norm, exponent)

    def _jumped(self, previous: list[float], norm: float, t: int, start: int) -> bool:
        """Beyond what growth at the blow-up exponent would have given since the last sample."""
        before = max(previous[0] - start, 1.0)
        grown = float((t / before) ** self.params.exponent) * max(previous[2], 1e-30)
        return norm > self.params.jump * grown

    def _restart(self, group: _Group, frame: StepFrame, norm: float) -> None:
        group.samples = [[float(frame.step), frame.t, norm]]
        group.lowest = group.reference = norm
        group.high_in_a_row = 0
        group.onset_step, group.onset_at = frame.step, frame.t

    def _exponent(self, group: _Group, step: int, norm: float, start: int) -> float | None:
        """d ln|W| / d ln t between now and the last sample at or before t / 1.6."""
        t = step - start
        old = [s for s in group.samples if 0 < s[0] - start <= t / self.params.look_back]
        if not old or norm <= 0 or old[-1][2] <= 0 or old[-1][0] - start < WARMUP_STEPS / 2:
            return None
        return math.log(norm / old[-1][2]) / math.log(t / (old[-1][0] - start))

    def _judge_growth(
        self, frame: StepFrame, name: str, group: _Group, norm: float, exponent: float
    ) -> list[Verdict]:
        params, lowest = self.params, group.lowest or norm
        high = exponent > params.exponent and norm > params.growth * lowest
        apart = (1.0 - params.spacing) * (frame.step - (self._gate.run_first_step or 0))
        counts = group.counted_step - (self._gate.run_first_step or 0) <= apart
        if not high:
            group.high_in_a_row = 0
            if exponent < params.exponent_clear:
                group.onset_step = group.onset_at = None
                return [self._verdict(frame, name, "calm", "info", "growth_settles", None)]
            return []
        if counts:
            if group.high_in_a_row == 0:
                self._mark_onset(group, frame)
            group.high_in_a_row += 1
            group.counted_step = float(frame.step)
        if group.high_in_a_row >= params.samples_in_a_row:
            return [self._bad(frame, name, group, "critical", "growth", norm, lowest, exponent)]
        return []

    def _mark_onset(self, group: _Group, frame: StepFrame) -> None:
        """Growth began after the last sample that still lay near the minimum."""
        near = [s for s in group.samples if s[2] <= 1.05 * (group.lowest or s[2])]
        later = [s for s in group.samples if near and s[0] > near[-1][0]]
        begin = later[0] if later else [float(frame.step), frame.t, 0.0]
        group.onset_step, group.onset_at = int(begin[0]), begin[1]

    def _bad(
        self, frame: StepFrame, name: str, group: _Group, severity: Severity, reason: str,
        norm: float, before: float, exponent: float | None = None,
    ) -> Verdict:  # fmt: skip
        if group.onset_step is None:
            group.onset_step, group.onset_at = frame.step, frame.t
        value, threshold, unit, numbers, summary = self._words(
            reason, name, norm, before, exponent, group.onset_step
        )
        evidence = Evidence(
            rule=reason,
            version=self.version,
            value=value,
            threshold=threshold,
            unit=unit,
            n=len(group.samples),
            onset_step=group.onset_step,
            onset_at=group.onset_at,
            series=(f"{PREFIX}{name}", f"effective_lr/{name}", f"update_ratio/{name}"),
            numbers=numbers,
            summary=summary,
            causes=self._causes(reason, group.onset_step),
            first_action=ACTIONS[reason],
            clears=f"three samples with a growth exponent below {self.params.exponent_clear}.",
        )
        return self._verdict(frame, name, "bad", severity, reason, evidence)

    def _causes(self, reason: str, onset: int) -> tuple[Cause, ...]:
        """A raised learning rate before the onset, or what else it may be."""
        usual = CAUSES[reason]
        if not self._raised or reason == "collapse":
            return (usual,)
        step, before, after = self._raised
        if reason == "jump" and step < onset - self.params.near_steps:
            return (usual,)
        text = f"the learning rate was raised x{after / before:.3g} at step {int(step):,}"
        return (Cause(text, 2, 2, f"from {before:.3g} to {after:.3g}"), usual)

    def _words(
        self, reason: str, name: str, norm: float, before: float, exponent: float | None, onset: int
    ) -> tuple[float, float, str, tuple[tuple[str, float, str, str], ...], str]:
        ratio = norm / before if before else math.inf
        numbers: list[tuple[str, float, str, str]] = [
            (f"|W| of {name}", norm, "", f"was {before:.4g}")
        ]
        if reason == "growth" and exponent is not None:
            numbers.append(("growth exponent", exponent, "", "0.5 is a random walk, 0 is at rest"))
            text = (
                f"The weight norm of {name} grows faster than its own age: exponent "
                f"{exponent:.2f}, {ratio:.1f}x its minimum, since step {onset:,}. Each step turns "
                "these weights less and less."
            )
            return exponent, self.params.exponent, "exponent", tuple(numbers), text
        limit = self.params.jump if reason == "jump" else self.params.collapse
        moved = "jumped" if reason == "jump" else "collapsed"
        text = f"The weight norm of {name} {moved} from {before:.4g} to {norm:.4g} ({ratio:.2g}x)."
        return ratio, limit, "ratio", tuple(numbers), text

    def _verdict(
        self, frame: StepFrame, name: str, judgement: Judgement, severity: Severity, reason: str,
        evidence: Evidence | None,
    ) -> Verdict:  # fmt: skip
        title = {"jump": "weight norm jump", "collapse": "weights collapsed"}.get(
            reason, self.title
        )
        return Verdict(
            self.name, name, judgement, severity, reason, frame.step, frame.t, frame.attempt,
            f"{title} ({name})", evidence,
        )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "groups": {name: asdict(group) for name, group in self._groups.items()},
            "rate": self._rate,
            "raised": list(self._raised),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._groups = {name: _Group(**group) for name, group in state["groups"].items()}
        self._rate, self._raised = state["rate"], list(state["raised"])


TITLES = {"jump": "weight norm jump", "collapse": "weights collapsed"}
CAUSES = {
    "growth": Cause(
        "weight decay cannot hold the norm at this learning rate, or logits run away in the head",
        1, 2,
    ),
    "jump": Cause("another checkpoint was loaded, or weights were changed from outside", 1, 2),
    "collapse": Cause("decay or a broken update emptied the weights", 1, 2),
}  # fmt: skip
ACTIONS = {
    "growth": "compare lr x weight decay with the length of the run; for the head, look at the "
    "logits and at a z-loss.",
    "jump": "check which checkpoint this attempt was resumed from.",
    "collapse": "stop the run and go back to the last checkpoint before this step.",
}
