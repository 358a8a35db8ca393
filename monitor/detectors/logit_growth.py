"""Logits that grow faster than the run ages: beyond their own plan, whatever their level."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.gate import Gate
from monitor.detectors.robust import bend_sd
from monitor.detectors.saying import finite, said, unsure

SUM = "logsumexp"
MAXIMA = ("logit_max", "attn_logit_max")
HELD_OUT = ("loss/heldout", "loss/probe")
TRAIN = "loss/train"


@dataclass(frozen=True, slots=True)
class Params:
    """Logits that find their size grow like the logarithm of the age: as much from t/4 to t/2 as
    from t/2 to t. ``bend``: half as much again is more than that. ``noise_sd``: the growth stands
    out of the noise. ``sum_nats``: the log of the partition sum by this much within half of the
    run's age. ``max_ratio``: maxima by half. ``linear``: doubling with the age, without an end.
    ``samples_in_a_row`` at least ``spacing`` of t apart. ``progress_share``: a held-out loss that
    fell by less than this since t/2 has gained nothing. ``earned_share``: logits have to grow for
    a loss to fall by so much since t/2: that is no growth beyond a plan. ``train_weight``: of one
    batch in the mean train loss. ``settle_steps``: earlier than that everything grows.
    ``kept_samples``: with 2 % of t between them, enough for any run."""

    bend: float = 1.5
    noise_sd: float = 6.0
    sum_nats: float = 0.7
    max_ratio: float = 1.5
    linear: float = 2.0
    samples_in_a_row: int = 3
    spacing: float = 0.05
    progress_share: float = 0.005
    earned_share: float = 0.2
    train_weight: float = 0.05
    settle_steps: int = 200
    kept_samples: int = 128


@dataclass(slots=True)
class _Curve:
    """Samples [step, time, value], at least 2 % of t apart, and what follows of them."""

    samples: list[list[float]] = field(default_factory=list)
    in_a_row: int = 0
    counted_step: float = -1e18
    onset_step: int | None = None
    onset_at: float | None = None


class LogitGrowth(Detector):
    """Information where logits outgrow their own past; a warning where nothing is gained by it."""

    name: ClassVar[str] = "logit_growth"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "logits grow"
    needs: ClassVar[tuple[str, ...]] = (
        "logsumexp/probe", "logit_max/probe", "attn_logit_max/*", "attn_logit_max", *HELD_OUT,
        TRAIN,
    )  # fmt: skip
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=3)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._gate = Gate()
        self._curves: dict[str, _Curve] = {}
        self._held: list[list[float]] = []
        self._held_key = ""
        self._train: float | None = None
        self._trained: list[list[float]] = []

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each logit series that this step brings."""
        if self._gate.enter(frame):
            self._rewind(frame.step)
        self._note_held(frame)
        verdicts: list[Verdict] = []
        for key in frame.values:
            value = finite(frame, key) if key.startswith((SUM, *MAXIMA)) else None
            if value is not None:
                verdicts += self._take(frame, key, value)
        return verdicts

    def _rewind(self, first_step: int) -> None:
        for curve in self._curves.values():
            curve.samples = [s for s in curve.samples if s[0] < first_step]
            curve.in_a_row, curve.onset_step, curve.onset_at = 0, None, None
        self._held = [s for s in self._held if s[0] < first_step]
        self._trained = [s for s in self._trained if s[0] < first_step]

    def _note_held(self, frame: StepFrame) -> None:
        loss = finite(frame, TRAIN)
        if loss is not None:
            # The mean of about the last 20 batches.
            known = loss if self._train is None else self._train
            self._train = known + self.params.train_weight * (loss - known)
            self._thin(self._trained, frame, self._train)
        for key in HELD_OUT:
            value = finite(frame, key)
            if value is not None and self._held_key in ("", key):
                self._held_key = key
                self._thin(self._held, frame, value)
                return

    def _thin(self, samples: list[list[float]], frame: StepFrame, value: float) -> None:
        age = frame.step - (self._gate.run_first_step or 0)
        if not samples or frame.step - samples[-1][0] >= 0.02 * age:
            samples.append([float(frame.step), frame.t, value])
            del samples[: -self.params.kept_samples]

    def _take(self, frame: StepFrame, key: str, value: float) -> list[Verdict]:
        curve = self._curves.setdefault(key, _Curve())
        self._thin(curve.samples, frame, value)
        age = frame.step - (self._gate.run_first_step or 0)
        wait = max(4 * self.params.settle_steps - age, self._gate.steps_to_go(frame.step))
        if wait > 0:
            return [unsure(self, frame, f"needs about {wait:,} more steps", key)]
        half, quarter = self._at(curve.samples, age / 2), self._at(curve.samples, age / 4)
        if half is None or quarter is None:
            return []
        return self._judge(frame, key, curve, (quarter[2], half[2], value))

    def _at(self, samples: list[list[float]], age: float) -> list[float] | None:
        """The last sample at or before an age; None where it would be far from it."""
        start = self._gate.run_first_step or 0
        old = [s for s in samples if s[0] - start <= age]
        return old[-1] if old and old[-1][0] - start >= 0.7 * age else None

    def _judge(
        self, frame: StepFrame, key: str, curve: _Curve, values: tuple[float, float, float]
    ) -> list[Verdict]:
        params, start = self.params, self._gate.run_first_step or 0
        if not self._outgrows(key, curve, values):
            curve.in_a_row = 0
            curve.onset_step = curve.onset_at = None
            return [said(self, frame, "calm", "info", "settles", subject=key)]
        if frame.step - curve.counted_step >= params.spacing * (frame.step - start):
            if curve.in_a_row == 0:
                half = self._at(curve.samples, (frame.step - start) / 2)
                curve.onset_step = int(half[0]) if half else frame.step
                curve.onset_at = half[1] if half else frame.t
            curve.in_a_row += 1
            curve.counted_step = float(frame.step)
        if curve.in_a_row < params.samples_in_a_row:
            return []
        return [self._bad(frame, key, curve, values)]

    def _outgrows(self, key: str, curve: _Curve, values: tuple[float, float, float]) -> bool:
        quarter, half, now = values
        params, earlier, later = self.params, half - quarter, now - half
        if self._is_earned(curve.samples[-1][0] - (self._gate.run_first_step or 0)):
            return False
        noise = bend_sd(np.asarray([sample[2] for sample in curve.samples[-24:]]))
        if later < params.noise_sd * noise or later < params.bend * max(earlier, 0.0):
            return False
        if key.startswith(SUM):
            return later > params.sum_nats
        return half > 0.0 and now > params.max_ratio * half

    def _is_earned(self, age: float) -> bool:
        """Whether a loss fell so far since half of the age that logits had to grow for it."""
        for samples in (self._held, self._trained):
            half = self._at(samples, age / 2)
            if half and samples[-1][2] < half[2] * (1.0 - self.params.earned_share):
                return True
        return False

    def _gains(self, age: float) -> bool | None:
        """Whether the held-out loss fell since half of the age; None where there is none."""
        half = self._at(self._held, age / 2)
        if half is None:
            return None
        return self._held[-1][2] < half[2] * (1.0 - self.params.progress_share)

    def _bad(
        self, frame: StepFrame, key: str, curve: _Curve, values: tuple[float, float, float]
    ) -> Verdict:
        quarter, half, now = values
        age = frame.step - (self._gate.run_first_step or 0)
        gains = self._gains(age)
        endless = not key.startswith(SUM) and now > self.params.linear * half
        warns = gains is False or endless
        held = " The held-out loss still falls." if gains else ""
        if gains is False:
            held = " The held-out loss gained nothing meanwhile."
        evidence = Evidence(
            rule="outgrows_its_past",
            version=self.version,
            value=now - half,
            threshold=self.params.bend * max(half - quarter, 0.0),
            n=len(curve.samples),
            onset_step=curve.onset_step,
            onset_at=curve.onset_at,
            series=(key, "logit_scale/probe", "weight_norm/head", *HELD_OUT),
            numbers=((key, now, "", f"{half:.3g} at half of the run's age, {quarter:.3g} before"),),
            summary=f"{key} grew from {half:.3g} to {now:.3g} over the last half of the run; the "
            f"doubling of its age before gave {half - quarter:+.2g}, this one "
            f"{now - half:+.2g}.{held}",
            causes=(self._cause(key),),
            first_action="look at the norm of the head and of queries and keys; a z-loss or "
            "QK-norm holds them.",
            clears="three samples that grow no faster than the run ages.",
        )
        return said(
            self, frame, "bad", "warning" if warns else "info", "outgrows_its_past", subject=key,
            title=f"{self.title} ({key})", evidence=evidence,
        )  # fmt: skip

    def _cause(self, key: str) -> Cause:
        if key.startswith("attn_logit_max"):
            return Cause("queries and keys grow: nothing bounds their product", 1, 2)
        shift, peak = self._growth("logsumexp"), self._growth("logit_max")
        if shift > 0.0 and peak <= 0.5 * shift:
            text = "all logits drift together: softmax does not feel it, a z-loss would hold them"
            return Cause(text, 2, 2, f"logsumexp {shift:+.2f}, largest logit {peak:+.2f}")
        text = "the head sharpens: repeated data, or a head norm that decay cannot hold"
        return Cause(text, 1, 2, f"logsumexp {shift:+.2f}, largest logit {peak:+.2f}")

    def _growth(self, name: str) -> float:
        curve = next((c for key, c in self._curves.items() if key.startswith(f"{name}/")), None)
        if curve is None or not curve.samples:
            return 0.0
        age = curve.samples[-1][0] - (self._gate.run_first_step or 0)
        half = self._at(curve.samples, age / 2)
        grown = curve.samples[-1][2] - half[2] if half else 0.0
        return grown if math.isfinite(grown) else 0.0

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "curves": {key: asdict(curve) for key, curve in self._curves.items()},
            "held": [list(sample) for sample in self._held],
            "held_key": self._held_key,
            "train": self._train,
            "trained": [list(sample) for sample in self._trained],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._curves = {key: _Curve(**curve) for key, curve in state["curves"].items()}
        self._held = [list(sample) for sample in state["held"]]
        self._held_key = state["held_key"]
        self._train = state["train"]
        self._trained = [list(sample) for sample in state["trained"]]
