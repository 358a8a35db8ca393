"""Overconfidence on the fixed held-out probe: surer than right.

Mean entropy minus mean NLL is what a model thinks it does not know minus what it does not know: 0
when calibrated, negative when it is surer than right; no bins, and no bias from few tokens.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import (
    WARMUP_POINTS,
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
from monitor.detectors.saying import finite, said, unsure

BALANCE = "entropy_minus_nll/probe"
LOSSES = ("loss/probe", "loss/heldout")


@dataclass(frozen=True, slots=True)
class Params:
    """Thresholds in nats of entropy minus NLL, unless named otherwise.

    ``low`` and ``below_best``: healthy runs of every schedule stayed above both; training on
    repeated data crossed them within 150 steps. ``clear``: hysteresis, so that a value about the
    threshold does not flap. ``noise``: what one probe of a steady model may differ from the next.
    ``heldout_rise`` and ``heldout_rise_share``: a rise of the held-out loss above its best by both
    is beyond the noise of such a probe. ``gap``, ``gap_above_best``, ``ece``, ``ece_ratio``: the
    older measures, kept as evidence (standard error of the gap about 0.008).
    ``learnt_top1``, ``learnt_share``: a model is surer than right once it is right at all: a
    held-out accuracy of 30 %, or a held-out loss 15 % below its first. One that never got there
    memorises, and may generalise yet. ``kept_probes``: how far back the onset is looked for.
    """

    low: float = -0.15
    below_best: float = 0.12
    clear: float = -0.10
    noise: float = 0.10
    heldout_rise: float = 0.03
    heldout_rise_share: float = 0.01
    gap: float = 0.06
    gap_above_best: float = 0.04
    ece: float = 0.06
    ece_ratio: float = 2.0
    learnt_top1: float = 0.30
    learnt_share: float = 0.15
    kept_probes: int = 64


@dataclass(slots=True)
class _Memory:
    """``first_loss``, ``top1_best``, ``has_learnt``: kept over attempts, all else begins anew."""

    first_loss: float | None = None
    top1_best: float | None = None
    has_learnt: bool = False
    points: int = 0
    best: float | None = None
    second: float | None = None
    at_decay: float | None = None
    good_step: int | None = None
    onset_step: int | None = None
    onset_at: float | None = None
    best_gap: float | None = None
    eces: list[float] = field(default_factory=list)
    best_loss: dict[str, float] = field(default_factory=dict)
    loss: dict[str, float] = field(default_factory=dict)
    recent: list[list[float]] = field(default_factory=list)
    interval: int | None = None
    last_step: int | None = None


class Overconfidence(Detector):
    """Warns on two probes in a row; critical when the held-out loss rises as well."""

    name: ClassVar[str] = "overconfidence"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "overconfident"
    needs: ClassVar[tuple[str, ...]] = (
        BALANCE, "entropy/probe", "confidence/probe", "top1/probe", "ece/probe",
        "logit_scale/probe", *LOSSES, "lr/*",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=2, m=2, calm=2)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._gate = Gate()
        self._lr = LrWatch()
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each probe; between probes only note learning rate and held-out loss."""
        if self._gate.enter(frame):
            old = self._memory
            self._memory = _Memory(old.first_loss, old.top1_best, old.has_learnt)
        self._lr.see(frame)
        self._note_learning(frame)
        balance = frame.values.get(BALANCE)
        warm = self._gate.steps_to_go(frame.step)
        if warm == 0:
            self._note_losses(frame)
        if balance is None or not math.isfinite(balance):
            return []
        if warm or self._memory.points + 1 < WARMUP_POINTS:
            return [self._too_early(frame, warm, balance)]
        self._note(frame, balance)
        if not self._memory.has_learnt:
            missing = "the model memorises: nothing held out has been learnt yet to be too sure of"
            return [unsure(self, frame, missing)]
        return self._judge(frame, balance)

    def _note_learning(self, frame: StepFrame) -> None:
        """Whether anything held out was ever learnt; what was usual before is no reference."""
        memory, params = self._memory, self.params
        top1 = finite(frame, "top1/probe")
        if top1 is not None:
            memory.top1_best = max(top1, memory.top1_best or 0.0)
        loss = next((v for key in LOSSES if (v := finite(frame, key)) is not None), None)
        if memory.first_loss is None:
            memory.first_loss = loss
        if memory.has_learnt or memory.first_loss is None:
            return
        right = memory.top1_best is None or memory.top1_best >= params.learnt_top1
        fell = loss is not None and loss < (1.0 - params.learnt_share) * memory.first_loss
        if right or fell:
            memory.has_learnt, memory.best, memory.second = True, None, None

    def _too_early(self, frame: StepFrame, warm: int, balance: float) -> Verdict:
        memory = self._memory
        if not warm:
            self._note(frame, balance)
        points_left = max(WARMUP_POINTS - memory.points, 0)
        steps = max(warm, points_left * (memory.interval or 0))
        evidence = Evidence(
            "warm_up", self.version, n=memory.points,
            summary=f"needs about {max(steps, 1)} more steps",
        )  # fmt: skip
        return said(self, frame, "cannot_tell", "info", "warm_up", evidence=evidence)

    def _note_losses(self, frame: StepFrame) -> None:
        memory = self._memory
        for key in LOSSES:
            value = frame.values.get(key)
            if value is None or not math.isfinite(value):
                continue
            memory.loss[key] = value
            memory.best_loss[key] = min(value, memory.best_loss.get(key, value))

    def _note(self, frame: StepFrame, balance: float) -> None:
        memory = self._memory
        memory.points += 1
        if memory.last_step is not None:
            memory.interval = frame.step - memory.last_step
        memory.last_step = frame.step
        memory.recent.append([float(frame.step), frame.t, balance])
        del memory.recent[: -self.params.kept_probes]
        # Second best: one lucky probe cannot teach itself in.
        ranked = sorted(
            (v for v in (memory.best, memory.second, balance) if v is not None), reverse=True
        )
        memory.best = ranked[0]
        memory.second = ranked[1] if len(ranked) > 1 else ranked[0]
        if memory.at_decay is None and self._lr.phase in ("decay", "tail"):
            memory.at_decay = balance
        gap = self._gap(frame)
        if gap is not None:
            memory.best_gap = min(gap, memory.best_gap if memory.best_gap is not None else gap)
        ece = frame.values.get("ece/probe")
        if ece is not None and math.isfinite(ece) and len(memory.eces) < 9:
            # A fixed reference: the first probes after warm-up.
            memory.eces.append(ece)

    def _reference(self) -> float:
        """What the balance is compared with: its best, or in decay where the decay found it."""
        memory = self._memory
        best = memory.second if memory.second is not None else 0.0
        if memory.at_decay is not None and self._lr.phase in ("decay", "tail"):
            # A falling learning rate sharpens healthily: it must get worse from there.
            return min(best, memory.at_decay)
        return best

    def _judge(self, frame: StepFrame, balance: float) -> list[Verdict]:
        params, reference = self.params, self._reference()
        if balance < params.low and balance < reference - params.below_best:
            severity: Severity = "critical" if self._rising() else "warning"
            reason = "surer_and_worse" if severity == "critical" else "surer_than_right"
            if self._memory.onset_step is None:
                self._mark_onset()
            evidence = self._evidence(frame, balance, reference)
            return [said(self, frame, "bad", severity, reason, evidence=evidence)]
        if balance > params.clear or balance > reference - params.below_best / 2:
            self._memory.onset_step = self._memory.onset_at = None
            return [said(self, frame, "calm", "info", "calibrated")]
        return []

    def _mark_onset(self) -> None:
        """The first probe of the fall that led here: going back as long as it was falling."""
        memory, index = self._memory, len(self._memory.recent) - 1
        while index > 0 and self._fell(memory.recent[index - 1][2], memory.recent[index][2]):
            index -= 1
        first = min(index + 1, len(memory.recent) - 1)
        memory.onset_step, memory.onset_at = int(memory.recent[first][0]), memory.recent[first][1]

    def _fell(self, before: float, after: float) -> bool:
        return after < self.params.clear or before - after > self.params.noise

    def _rising(self) -> list[str]:
        """Held-out losses that rose: evidence of another kind than the model's own sureness."""
        memory = self._memory
        return [
            key
            for key, value in memory.loss.items()
            if value - memory.best_loss[key]
            > max(self.params.heldout_rise, self.params.heldout_rise_share * memory.best_loss[key])
        ]

    def _gap(self, frame: StepFrame) -> float | None:
        confidence, top1 = frame.values.get("confidence/probe"), frame.values.get("top1/probe")
        if confidence is None or top1 is None:
            return None
        gap = confidence - top1
        return gap if math.isfinite(gap) else None

    def _evidence(self, frame: StepFrame, balance: float, reference: float) -> Evidence:
        memory, rising = self._memory, self._rising()
        numbers = [("entropy minus NLL", balance, "nats", f"best {reference:.2f}, 0 is calibrated")]
        gap = self._gap(frame)
        if gap is not None and memory.best_gap is not None:
            text = f"confidence minus accuracy; best {memory.best_gap:.3f}"
            numbers.append(("confidence gap", gap, "", text))
        if rising:
            best = memory.best_loss[rising[0]]
            rise = memory.loss[rising[0]] - best
            numbers.append((f"{rising[0]} above its best", rise, "nats", f"best {best:.3f}"))
        worse = " The held-out loss does not show it yet."
        if rising:
            worse = f" Meanwhile {rising[0]} rose {numbers[-1][1]:.2f} above its best."
        return Evidence(
            rule="entropy_minus_nll",
            version=self.version,
            value=balance,
            threshold=min(self.params.low, reference - self.params.below_best),
            unit="nats",
            n=memory.points,
            onset_step=memory.onset_step,
            onset_at=memory.onset_at,
            series=(BALANCE, "confidence/probe", "top1/probe", "ece/probe", *LOSSES),
            numbers=tuple(numbers),
            summary=f"On the fixed probe the model is {-balance:.2f} nats surer than it is right "
            f"(best so far {reference:+.2f}; 0 is calibrated).{worse}",
            causes=self._causes(frame, rising),
            first_action="compare with the checkpoint before this step; look for repeated data and "
            "for a corpus that is too small for the tokens trained.",
            clears=f"two probes in a row above {self.params.clear} nats.",
        )

    def _causes(self, frame: StepFrame, rising: list[str]) -> tuple[Cause, ...]:
        params, memory, gap = self.params, self._memory, self._gap(frame)
        ece = frame.values.get("ece/probe")
        usual = sorted(memory.eces)[len(memory.eces) // 2] if memory.eces else None
        signs = [bool(rising)]
        if gap is not None and memory.best_gap is not None:
            signs.append(gap > params.gap and gap > memory.best_gap + params.gap_above_best)
        if ece is not None and usual is not None:
            signs.append(ece > params.ece and ece > params.ece_ratio * usual)
        why = ", ".join(
            word
            for word in (
                f"{rising[0]} rising" if rising else "",
                f"confidence gap {gap:.3f}" if gap is not None else "",
                f"ECE {ece:.3f} (usual {usual:.3f})" if ece is not None and usual else "",
            )
            if word
        )
        text = "the model memorises: repeated or too little data"
        return (Cause(text, signs_seen=sum(signs), signs_of=len(signs), why=why),)

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "lr": self._lr.snapshot(),
            "memory": asdict(self._memory),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._lr = LrWatch(**state["lr"])
        self._memory = _Memory(**state["memory"])
