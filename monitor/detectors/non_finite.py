"""NaN and infinity in the loss, the gradients or the weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    Judgement,
    RunFacts,
    StepFrame,
    Verdict,
)

WEIGHTS = ("weight_norm/", "weight_rms/")


@dataclass(frozen=True, slots=True)
class Params:
    """``grad_in_a_row``: mixed precision searches its loss scale by overflowing now and then, one
    step at a time; three in a row is no search. ``grad_hot_ratio``: a gradient norm this many times
    its usual size beforehand is named as a sign of divergence (healthy runs reach about 10)."""

    grad_in_a_row: int = 3
    grad_hot_ratio: float = 10.0


ZERO_LOSS = "zero_loss_with_broken_gradient"
WORDS = {"loss": "the loss", "grad_norm": "the gradient"}


@dataclass(slots=True)
class _Memory:
    onset_step: int | None = None
    onset_at: float | None = None
    first: str = ""
    grads: int = 0
    grad_step: int | None = None
    grad_at: float | None = None
    usual_grad: float | None = None
    hottest: float = 0.0


class NonFinite(Detector):
    """Fires at once on a non-finite loss or weight; on gradients alone only three in a row."""

    name: ClassVar[str] = "non_finite"
    title: ClassVar[str] = "numbers are no longer finite"
    needs: ClassVar[tuple[str, ...]] = ("loss/*", "grad_norm/*", "weight_norm/*", "weight_rms/*")
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=20)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._memory = _Memory()
        self._attempt = ""

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge the step's losses, gradient norms and weight norms, from the very first step."""
        if frame.attempt != self._attempt:
            self._memory, self._attempt = _Memory(), frame.attempt
        if not frame.values:
            return []
        broken = [key for key, value in frame.values.items() if not math.isfinite(value)]
        reason = self._reason(frame, broken)
        if reason is None:
            return self._calm(frame) if not broken else []
        return [self._bad(frame, broken, reason)]

    def _reason(self, frame: StepFrame, broken: list[str]) -> str | None:
        grads = [key for key in broken if key.startswith("grad_norm/")]
        self._count_grads(frame, bool(grads))
        if any(key.startswith("loss/") for key in broken):
            return "loss_not_finite"
        if any(key.startswith(WEIGHTS) for key in broken):
            return "weights_not_finite"
        if grads and frame.values.get("loss/train") == 0.0:
            return ZERO_LOSS
        if grads and self._memory.grads >= self.params.grad_in_a_row:
            return "gradient_not_finite"
        return None

    def _count_grads(self, frame: StepFrame, broken: bool) -> None:
        memory = self._memory
        if broken:
            if memory.grads == 0:
                memory.grad_step, memory.grad_at = frame.step, frame.t
            memory.grads += 1
            return
        total = frame.values.get("grad_norm/total")
        if total is None:
            return
        memory.grads = 0
        usual = memory.usual_grad
        ratio = total / usual if usual else 1.0
        memory.hottest = max(0.9 * memory.hottest, ratio)
        # Winsorised, so that an explosion does not become what is usual.
        step = min(total, 3.0 * usual) if usual else total
        memory.usual_grad = step if usual is None else usual + 0.05 * (step - usual)

    def _calm(self, frame: StepFrame) -> list[Verdict]:
        if self._memory.onset_step is None:
            return []
        if "loss/train" not in frame.values:
            return []
        return [self._verdict(frame, "calm", "finite_again", None)]

    def _bad(self, frame: StepFrame, broken: list[str], reason: str) -> Verdict:
        memory = self._memory
        if memory.onset_step is None:
            by_grad = memory.grads > 0 and memory.grad_step is not None
            memory.onset_step = memory.grad_step if by_grad else frame.step
            memory.onset_at = memory.grad_at if by_grad else frame.t
            memory.first = sorted(broken, key=lambda key: not key.startswith("loss/"))[0]
        return self._verdict(frame, "bad", reason, self._evidence(frame, broken, reason))

    def _evidence(self, frame: StepFrame, broken: list[str], reason: str) -> Evidence:
        memory, shown = self._memory, ", ".join(sorted(broken)[:4])
        zero = " The loss says 0 exactly: it is no good one." if reason == ZERO_LOSS else ""
        return Evidence(
            rule=reason,
            version=self.version,
            n=len(broken),
            onset_step=memory.onset_step,
            onset_at=memory.onset_at,
            series=tuple(sorted(broken)[:8]),
            numbers=(("series that are not finite", float(len(broken)), "", shown),),
            summary=f"{memory.first} stopped being a number at step {memory.onset_step:,}; "
            f"now not finite: {shown}.{zero}",
            causes=self._causes(reason),
            first_action="stop the run; go back to the last checkpoint before this step. Weights "
            "that hold a NaN never recover.",
            clears="20 steps in a row with all of them finite.",
        )

    def _causes(self, reason: str) -> tuple[Cause, ...]:
        hot = self._memory.hottest > self.params.grad_hot_ratio
        diverged = Cause(
            "the run diverged: learning rate, or a batch it could not digest",
            signs_seen=int(hot),
            signs_of=1,
            why=f"gradient norm reached {self._memory.hottest:.0f}x its usual size just before"
            if hot
            else "the gradient norm was as usual before",
        )
        overflow = Cause(
            "an overflow in half precision, or one broken operation or batch",
            signs_seen=int(not hot) + int(reason == "gradient_not_finite"),
            signs_of=2,
            why="nothing grew beforehand" if not hot else "",
        )
        return tuple(sorted((diverged, overflow), key=lambda c: -c.signs_seen / c.signs_of))

    def _verdict(
        self, frame: StepFrame, judgement: Judgement, reason: str, evidence: Evidence | None
    ) -> Verdict:
        return Verdict(
            self.name, "", judgement, "critical", reason, frame.step, frame.t, frame.attempt,
            self._title(judgement), evidence,
        )  # fmt: skip

    def _title(self, judgement: Judgement) -> str:
        """Which number it was, first of all."""
        name = self._memory.first.partition("/")[0]
        if judgement != "bad" or not name:
            return self.title
        return f"{WORDS.get(name, self._memory.first)} is not a number"

    def snapshot(self) -> dict[str, Any]:
        return {"attempt": self._attempt, "memory": asdict(self._memory)}

    def restore(self, state: dict[str, Any]) -> None:
        self._attempt = state["attempt"]
        self._memory = _Memory(**state["memory"])
