"""What may lie behind a plateau: signs collected along the way, ranked when they are asked for."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from monitor.detectors.base import Cause, StepFrame
from monitor.detectors.gate import LrWatch
from monitor.detectors.robust import mann_kendall, median

ROTATION = "effective_lr/"
NOT_JUDGED = ("emb", "head", "emb_head", "norm", "other", "total", "lora", "router")
"""Groups whose direction is not all that counts: their rotation is not their learning rate."""


@dataclass(frozen=True, slots=True)
class CauseParams:
    """``rotation_share``: half of the rotation per learning rate it had early on. ``repeat_share``
    as in stale_data. ``near_steps``: a stall this far before the onset may have begun it.
    ``trend_p``: how sure a rise of the top-10 share must be (Mann-Kendall). ``kept``: values of the
    probe looked back on for that trend."""

    rotation_share: float = 0.5
    repeat_share: float = 0.05
    near_steps: int = 200
    trend_p: float = 0.01
    kept: int = 12


@dataclass(slots=True)
class Signs:
    """Memory of the companions of the loss."""

    lr: LrWatch = field(default_factory=LrWatch)
    repeats: float = 0.0
    repeat_step: int | None = None
    stalls: list[list[float]] = field(default_factory=list)
    rotation: dict[str, float] = field(default_factory=dict)
    rotation_before: dict[str, float] = field(default_factory=dict)
    top10: list[float] = field(default_factory=list)
    rank: list[float] = field(default_factory=list)
    top1: list[float] = field(default_factory=list)

    def see(self, frame: StepFrame, warm: bool, params: CauseParams) -> None:
        """Note what this step says; rotation is compared with its first value after warm-up."""
        self.lr.see(frame)
        self._see_data(frame)
        for name in ("top10", "median_rank", "top1"):
            value = frame.values.get(f"{name}/probe")
            if warm and value is not None and math.isfinite(value):
                kept: list[float] = getattr(self, "rank" if name == "median_rank" else name)
                kept.append(value)
                del kept[: -params.kept]
        if warm and self.lr.value:
            self._see_rotation(frame, self.lr.value)

    def _see_data(self, frame: StepFrame) -> None:
        share = frame.values.get("repeat_share")
        if share is not None and math.isfinite(share):
            # About the last 20 batches; the first of a spell is kept.
            self.repeats += 0.05 * (share - self.repeats)
            if share > 0 and self.repeat_step is None:
                self.repeat_step = frame.step
            elif self.repeats < 0.01:
                self.repeat_step = None
        for event in frame.events:
            if event.name == "data_stall":
                self.stalls.append([float(frame.step), float(event.data.get("wait_s") or 0.0)])
                del self.stalls[:-8]

    def _see_rotation(self, frame: StepFrame, rate: float) -> None:
        for key, angle in frame.values.items():
            group = key.removeprefix(ROTATION)
            if key.startswith(ROTATION) and group not in NOT_JUDGED and math.isfinite(angle):
                self.rotation[group] = angle / rate
                self.rotation_before.setdefault(group, angle / rate)

    def still_improving(self, params: CauseParams) -> str:
        """Words for a top-10 share or median rank that gets better all the same, or nothing."""
        for values, good, words in (
            (self.top10, 1, "top-10 accuracy"),
            (self.rank, -1, "the median rank of the true token"),
        ):
            direction, p = mann_kendall(values)
            if direction == good and p < params.trend_p:
                return words
        return ""

    def causes(self, onset: int, params: CauseParams) -> tuple[Cause, ...]:
        """Ranked: those with all of their signs first; else "unexplained"."""
        found = [*self._lr_causes(onset), *self._data_causes(onset, params)]
        lost = self._lost_rotation(params)
        if lost:
            why = f"rotation per learning rate fell below half in {', '.join(lost)}"
            text = "the weights hardly turn any more: their norms outgrew the learning rate"
            found.append(Cause(text, len(lost), max(len(self.rotation), 1), why))
        if not found:
            text = "unexplained: learning rate, data and rotation look as before"
            return (Cause(text, 0, 1, "none of the known causes shows"),)
        return tuple(sorted(found, key=lambda cause: -cause.signs_seen / cause.signs_of))

    def _lr_causes(self, onset: int) -> list[Cause]:
        if self.lr.value == 0.0 or self.lr.phase == "cut":
            at = f" since step {self.lr.cut_step:,}" if self.lr.cut_step is not None else ""
            text = f"the learning rate is {self.lr.value:g}{at}"
            return [Cause(text, 1, 1, f"its peak was {self.lr.peak:g}")]
        return []

    def _data_causes(self, onset: int, params: CauseParams) -> list[Cause]:
        near = [s for s in self.stalls if onset - params.near_steps <= s[0] <= onset + 50]
        stale = self.repeats > params.repeat_share
        if stale:
            text = f"stale data: {100 * self.repeats:.0f} % of the rows were served before"
            if near:
                text += f", after a {near[-1][1]:.1f} s stall at step {int(near[-1][0]):,}"
            return [Cause(text, 2 if near else 1, 2 if near else 1, "repeats beyond the declared")]
        if near:
            text = f"the loader stalled for {near[-1][1]:.1f} s at step {int(near[-1][0]):,}"
            return [Cause(text, 1, 2, "a stall near the onset, but no repeats seen")]
        return []

    def _lost_rotation(self, params: CauseParams) -> list[str]:
        return sorted(
            group
            for group, now in self.rotation.items()
            if now < params.rotation_share * self.rotation_before[group]
        )

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Signs:
        return cls(**{**state, "lr": LrWatch(**state["lr"])})

    def top1_text(self) -> str:
        return f"top-1 {median(self.top1[-3:]):.3f}" if self.top1 else ""


MEMORISES = Cause(
    "the model memorises: the batch loss falls, the held-out loss never did", 2, 2,
    "it may generalise yet, or never",
)  # fmt: skip
