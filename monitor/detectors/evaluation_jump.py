"""Two held-out losses of the same weights part all at once: the evaluation changed, not the model.

The user's validation and the fixed probe move together, whatever the model does. Where the
difference between them steps up within one evaluation and stays, something about the evaluation
is another: dropout left on, other data, another mask, other weights than those that are trained.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from monitor.detectors.base import Cause, Evidence, StepFrame
from monitor.detectors.robust import bend_sd, median
from monitor.detectors.saying import finite

HELD, PROBE = "loss/heldout", "loss/probe"


@dataclass(frozen=True, slots=True)
class JumpParams:
    """``before``: evaluations whose difference is what is usual. ``after``: so many in a row are
    beyond it (a few more may be waited for). ``jump_sd``: in standard deviations of it,
    ``jump_share``: and in shares of the loss. ``noise_share``: two small held-out sets differ by
    this much from evaluation to evaluation, whatever their first values say. ``sudden_share``: of
    the rise, within one evaluation; other distributions part slowly."""

    before: int = 5
    after: int = 3
    longest_after: int = 5
    noise_evals: int = 8
    jump_sd: float = 6.0
    jump_share: float = 0.005
    noise_share: float = 0.0015
    sudden_share: float = 0.5
    kept_evals: int = 32


@dataclass(slots=True)
class EvaluationJump:
    """``points``: [step, time, held-out minus probe, held-out]. ``size``: of the open jump in nats
    (0: none), ``level``: the difference before it."""

    probe: list[float] = field(default_factory=list)
    interval: float = 0.0
    points: list[list[float]] = field(default_factory=list)
    size: float = 0.0
    level: float = 0.0
    onset_step: int = 0
    onset_at: float = 0.0

    def see(self, frame: StepFrame, params: JumpParams) -> bool:
        """Take the losses of a step; True where there is a new difference to judge."""
        probe, held = finite(frame, PROBE), finite(frame, HELD)
        if probe is not None:
            if self.probe:
                self.interval = frame.step - self.probe[0]
            self.probe = [float(frame.step), probe]
        if held is None or not self.probe or frame.step - self.probe[0] > self.interval:
            return False
        self.points.append([float(frame.step), frame.t, held - self.probe[1], held])
        del self.points[: -params.kept_evals]
        return True

    def rewind(self, step: int) -> None:
        """Another attempt owns the steps from here on; what is usual stays so."""
        self.points = [point for point in self.points if point[0] < step]
        self.probe = []

    def judge(self, params: JumpParams) -> bool:
        """Whether the last evaluations are apart from what is usual."""
        if self.size > 0.0:
            if self.points[-1][2] - self.level < self.size / 2:
                self.size = 0.0
            return self.size > 0.0
        longest = min(params.longest_after, len(self.points) - params.before)
        return any(self._apart(count, params) for count in range(params.after, longest + 1))

    def _apart(self, count: int, params: JumpParams) -> bool:
        before, after = self.points[:-count], self.points[-count:]
        usual = np.asarray([point[2] for point in before[-params.noise_evals :]])
        steps = np.diff(usual)
        base = median(list(usual[-3:]))
        # A steady drift of the difference is in its steps, and raises the limit with them.
        noise = max(
            bend_sd(usual), float(np.sqrt(np.mean(steps**2) / 2.0)),
            params.noise_share * before[-1][3],
        )  # fmt: skip
        limit = max(params.jump_sd * noise, params.jump_share * before[-1][3])
        rises = [point[2] - base for point in after]
        sudden = after[0][2] - before[-1][2] > params.sudden_share * median(rises)
        if not sudden or min(rises) <= limit:
            return False
        self.size, self.level = median(rises), base
        self.onset_step, self.onset_at = int(before[-1][0]) + 1, before[-1][1]
        return True

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)


def changed(jump: EvaluationJump, version: int) -> Evidence:
    """What is said of two held-out losses that parted."""
    _, _, apart, held = jump.points[-1]
    cause = Cause(
        "the evaluation changed, not the model: dropout left on, other held-out data or weights",
        2, 2, "the fixed probe of the same weights did not move with it",
    )  # fmt: skip
    return Evidence(
        rule="evaluation_changed",
        version=version,
        value=apart,
        threshold=jump.level + jump.size / 2,
        unit="nats",
        n=len(jump.points),
        onset_step=jump.onset_step,
        onset_at=jump.onset_at,
        series=("loss/heldout", "loss/probe", "loss/train"),
        numbers=(
            ("held-out minus probe", apart, "nats", f"was {jump.level:+.3f}"),
            ("loss/heldout", held, "nats", f"the probe has {held - apart:.3f}"),
        ),
        summary=f"loss/heldout stepped up by {jump.size:.3f} nats against the fixed probe since "
        f"step {jump.onset_step:,}, within one evaluation, and stays there.",
        causes=(cause,),
        first_action="is the model in eval mode while it is validated? are data, mask and weights "
        "those of the evaluation before?",
        clears="an evaluation that lost half of the step.",
    )
