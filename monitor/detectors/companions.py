"""What happened around a loss that moved: learning rate, data, gradients, restarts. And what of it
may be the cause.

Every sign is something that was seen; where none was, the cause is "unexplained".
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from monitor.detectors.base import Cause, StepFrame
from monitor.detectors.rolling import Rolling

NEEDS = ("lr/*", "grad_norm/total", "repeat_share")
"""The series it reads; a detector that uses it needs them."""
SLOW_NEEDS = ("lr/*", "repeat_share")
"""Those of a detector that judges blocks or evaluations: no gradient tells how they began."""
KEPT = 8
"""So many of the latest stalls, changes and the like are remembered."""


@dataclass(frozen=True, slots=True)
class CompanionParams:
    """``lr_ratio``: a learning rate that rises by this factor between two steps was raised by
    somebody; a warm-up does not do that after its first steps. ``grad_hot``: a gradient norm this
    many times its median; healthy runs reach it alone, without a loss that follows.
    ``grad_early``: three times its median before the loss moved is a forewarning.
    ``near_steps``: what lies this far before an onset may have brought it about.
    ``repeat_share``: as in stale_data. ``grad_points``: of the running median.
    ``grad_kept``: a divergence is told some 20 points after its onset, and looks back."""

    lr_ratio: float = 1.3
    grad_hot: float = 10.0
    grad_early: float = 3.0
    near_steps: int = 100
    repeat_share: float = 0.05
    grad_points: int = 64
    grad_fewest: int = 16
    grad_kept: int = 48


@dataclass(slots=True)
class _Memory:
    """``lists of [step, ...]``: rises of the learning rate (before, after), stalls (wait in s)."""

    lr: float | None = None
    lr_rises: list[list[float]] = field(default_factory=list)
    stalls: list[list[float]] = field(default_factory=list)
    mixes: list[int] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    ratios: list[list[float]] = field(default_factory=list)
    repeats: float = 0.0
    repeats_told: bool = False
    repeats_since: int | None = None
    repeats_ended: int | None = None
    attempt: str = ""


class Companions:
    """Memory of the companions of a loss, and the causes they speak for."""

    def __init__(self, params: CompanionParams | None = None) -> None:
        self._params = params or CompanionParams()
        self._grads = Rolling(self._params.grad_points)
        self._memory = _Memory()

    def see(self, frame: StepFrame) -> None:
        """Note what this step says."""
        memory = self._memory
        if frame.attempt != memory.attempt:
            if memory.attempt:
                _keep(memory.restarts, frame.step)
            memory.attempt = frame.attempt
            self._grads.clear()
            memory.ratios = []
        for event in frame.events:
            if event.name == "data_stall":
                _keep(memory.stalls, [float(frame.step), float(event.data.get("wait_s") or 0.0)])
            elif event.name == "data_mix" and event.kind in ("phase", "event"):
                _keep(memory.mixes, frame.step)
        values = frame.values
        if (share := values.get("repeat_share")) is not None and math.isfinite(share):
            self._see_repeats(frame.step, share)
        if (norm := values.get("grad_norm/total")) is not None and math.isfinite(norm):
            self._see_gradient(frame.step, norm)
        self._see_rate(frame)

    def _see_repeats(self, step: int, share: float) -> None:
        memory = self._memory
        memory.repeats += 0.05 * (share - memory.repeats)
        memory.repeats_told = True
        stale = memory.repeats > self._params.repeat_share
        if share > 0 and memory.repeats_since is None:
            memory.repeats_since = step
        if stale and share == 0.0 and memory.repeats_ended is None:
            memory.repeats_ended = step
        elif share > 0 and stale:
            memory.repeats_ended = None
        if not stale and share == 0.0:
            memory.repeats_since = None

    def _see_gradient(self, step: int, norm: float) -> None:
        usual = self._grads.median() if len(self._grads) >= self._params.grad_fewest else 0.0
        # An instrument that reads 0 or never moves has nothing to say.
        ratio = norm / usual if usual > 0.0 else 0.0
        self._memory.ratios.append([float(step), ratio])
        del self._memory.ratios[: -self._params.grad_kept]
        self._grads.add(min(norm, self._params.grad_early * usual) if usual > 0.0 else norm)

    def _see_rate(self, frame: StepFrame) -> None:
        rates = [v for key, v in frame.values.items() if key.startswith("lr/") and v >= 0.0]
        if not rates:
            return
        memory, rate = self._memory, max(rates)
        before = memory.lr
        if before and rate > self._params.lr_ratio * before:
            _keep(memory.lr_rises, [float(frame.step), before, rate])
        memory.lr = rate

    # -- what it tells ---------------------------------------------------------------------------

    @property
    def grad_ratio(self) -> float:
        """The gradient norm over its median: the largest of the last three points."""
        return max((ratio for _, ratio in self._memory.ratios[-3:]), default=0.0)

    def are_rows_fresh(self, below: float) -> bool:
        """Whether rows are counted, and next to none of the last 20 batches was a repeat."""
        return self._memory.repeats_told and self._memory.repeats < below

    def mixed_at(self, step: int) -> bool:
        """Whether a change of the data mix was declared at this step."""
        return bool(self._memory.mixes) and self._memory.mixes[-1] == step

    def repeats_ended_by(self, step: int, within: int) -> bool:
        """Whether fresh data came back within so many steps before this one."""
        ended = self._memory.repeats_ended
        return ended is not None and ended <= step <= ended + within

    def causes(self, onset: int) -> tuple[Cause, ...]:
        """Ranked: those with all of their signs first, the more signs the better."""
        found = [*self._by_act(onset), *self._by_data(onset), *self._by_gradient(onset)]
        if not found:
            others = ", data and gradients" if self._memory.ratios else " and data"
            text = f"unexplained: learning rate{others} look as before"
            return (Cause(text, 0, 1, "none of the known causes shows"),)
        return tuple(sorted(found, key=lambda c: (-c.signs_seen / c.signs_of, -c.signs_seen)))

    def _near(self, step: float, onset: int) -> bool:
        return onset - self._params.near_steps <= step <= onset + 1

    def _by_act(self, onset: int) -> list[Cause]:
        """What somebody did: a raised learning rate, a restart, another mix."""
        memory, found = self._memory, []
        for step, before, after in memory.lr_rises[-1:]:
            if self._near(step, onset):
                text = f"the learning rate was raised x{after / before:.3g} at step {int(step):,}"
                found.append(Cause(text, 2, 2, f"from {before:.3g} to {after:.3g}"))
        for step in memory.restarts[-1:]:
            if self._near(step, onset):
                text = f"the run was resumed at step {step:,}"
                found.append(Cause(text, 1, 2, "optimizer state or data order may have been lost"))
        for step in memory.mixes[-1:]:
            if self._near(step, onset):
                found.append(Cause(f"another data mix began at step {step:,}", 2, 2, "declared"))
        return found

    def _by_data(self, onset: int) -> list[Cause]:
        memory, params = self._memory, self._params
        ended = memory.repeats_ended
        if ended is not None and self._near(ended, onset):
            text = f"fresh data came back at step {ended:,} after repeats the model had memorised"
            return [Cause(text, 2, 2, "the repeats ended just before")]
        stalls = [s for s in memory.stalls if self._near(s[0], onset)]
        stall = f"{stalls[-1][1]:.1f} s stall at step {int(stalls[-1][0]):,}" if stalls else ""
        if memory.repeats > params.repeat_share:
            since = memory.repeats_since if memory.repeats_since is not None else onset
            text = f"stale data: {100 * memory.repeats:.0f} % of the rows were served before, "
            text += f"since step {since:,}" + (f", after a {stall}" if stall else "")
            return [Cause(text, 2, 2, "repeats beyond the declared epochs")]
        if stall:
            return [Cause(f"the loader: a {stall}", 1, 2, "no repeats were seen")]
        return []

    def _by_gradient(self, onset: int) -> list[Cause]:
        params = self._params
        early = [r for r in self._memory.ratios if r[0] < onset and r[1] > params.grad_early]
        at_once = max((r[1] for r in self._memory.ratios if r[0] >= onset), default=0.0)
        if early:
            step, ratio = early[0]
            text = "the optimization became unstable: gradients grew before the loss did"
            why = f"gradient norm x{ratio:.1f} already {onset - int(step)} steps before"
            return [Cause(text, 2 if at_once > params.grad_hot else 1, 2, why)]
        if at_once > params.grad_early:
            text = "a batch the model could not digest: hard, broken or foreign data"
            why = f"loss and gradient norm (x{at_once:.1f}) rose at the same step"
            return [Cause(text, 2, 2, why)]
        return []

    # -- memory ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {"grads": self._grads.snapshot(), "memory": asdict(self._memory)}

    def restore(self, state: dict[str, Any]) -> None:
        self._grads = Rolling(self._params.grad_points, state["grads"])
        self._memory = _Memory(**state["memory"])


def _keep(kept: list[Any], item: Any) -> None:
    kept.append(item)
    del kept[:-KEPT]
