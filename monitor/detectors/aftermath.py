"""After a stall: does the loss still fall as it did before? Watched over the next evaluations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from monitor.detectors.base import StepFrame
from monitor.detectors.progress import BlockSeries, Fit, fit_decay, observed_drop
from monitor.detectors.saying import finite

HELDOUT = ("loss/heldout", "loss/probe")
FEWEST_BEFORE = 8
TRAIN_BLOCK = 10

Outcome = Literal["", "fell", "as_before", "cannot_tell"]


@dataclass(frozen=True, slots=True)
class AftermathParams:
    """``fewest`` and ``most`` blocks after the stall. ``power``: how far the expected drop must
    stand out of the noise before anything is said. ``z`` and ``lost_share``: what counts as lost
    progress, ``times`` in a row. ``kept_share``: the share of the expected drop that is as before.
    """

    fewest: int = 6
    most: int = 40
    power: float = 3.0
    z: float = 4.0
    lost_share: float = 0.25
    kept_share: float = 0.5
    times: int = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What the evaluations after a stall say; drops in nats, ``key`` is the loss looked at."""

    outcome: Outcome
    key: str = ""
    blocks: int = 0
    expected: float = 0.0
    observed: float = 0.0
    missing: str = ""


@dataclass(slots=True)
class Aftermath:
    """Keeps the losses, and watches them after a stall. All of it is plain for a snapshot."""

    heldout_key: str = ""
    heldout: BlockSeries = field(default_factory=BlockSeries)
    train: BlockSeries = field(default_factory=lambda: BlockSeries(TRAIN_BLOCK))
    first_step: int | None = None
    last_step: int = 0
    at: float = 0.0
    wait_s: float = 0.0
    lr_changes: int = 0
    bad_in_a_row: int = 0
    fell: bool = False

    @property
    def watching(self) -> bool:
        return self.first_step is not None

    def see(self, frame: StepFrame) -> bool:
        """Take the losses of a step; True when one of them completed a block."""
        added = False
        for key in HELDOUT:
            loss = finite(frame, key)
            if loss is not None and self.heldout_key in ("", key):
                self.heldout_key = key
                added |= self.heldout.add(frame.step, frame.t, float(frame.step + 1), loss)
        loss = finite(frame, "loss/train")
        if loss is not None:
            added |= self.train.add(frame.step, frame.t, float(frame.step + 1), loss)
        return added

    def begin(self, step: int, at: float, wait_s: float, lr_changes: int) -> None:
        """A stall: watch from here. One during a watch belongs to it, and the watch begins anew."""
        if self.first_step is None:
            self.first_step, self.at, self.lr_changes = step, at, lr_changes
            self.wait_s, self.bad_in_a_row, self.fell = 0.0, 0, False
        self.last_step, self.wait_s = step, self.wait_s + wait_s

    def end(self) -> None:
        self.first_step, self.fell, self.bad_in_a_row = None, False, 0

    def rewind(self, step: int) -> None:
        """Another attempt owns the steps from here on."""
        self.heldout.cut(step)
        self.train.cut(step)
        self.end()

    def judge(self, lr_changes: int, params: AftermathParams) -> Finding:
        """What can be said now; an outcome of "" means: wait for more."""
        if self.first_step is None:
            return Finding("")
        if lr_changes != self.lr_changes:
            return Finding("cannot_tell", missing="the learning rate was changed since the stall")
        key, series = self._series()
        before = [i for i, step in enumerate(series.steps) if step < self.first_step]
        after = [i for i, step in enumerate(series.steps) if step > self.last_step]
        if len(before) < FEWEST_BEFORE:
            return Finding("cannot_tell", missing="too few evaluations before the stall")
        if len(after) < params.fewest:
            return Finding("", key, len(after))
        return self._compare(key, series, before, after, params)

    def _series(self) -> tuple[str, BlockSeries]:
        before = sum(step < (self.first_step or 0) for step in self.heldout.steps)
        if before >= FEWEST_BEFORE:
            return self.heldout_key, self.heldout
        return "loss/train", self.train

    def _compare(
        self, key: str, series: BlockSeries, before: list[int], after: list[int],
        params: AftermathParams,
    ) -> Finding:  # fmt: skip
        kept = before[len(before) // 10 :]
        t_N, loss_N = np.asarray(series.ts), np.asarray(series.losses)
        fit = fit_decay(t_N[kept], loss_N[kept])
        if fit is None:
            return Finding("cannot_tell", missing="the loss did not fall before the stall either")
        t_W, loss_W = t_N[after], loss_N[after]
        expected = min(fit.drop(float(t_W[0]), float(t_W[-1])), 0.5 * float(loss_W[0]))
        # A step up between the two belongs to the aftermath as well.
        observed = min(observed_drop(t_W, loss_W), _fallen(fit, t_W, loss_W))
        sd = fit.sigma * (12.0 / len(after)) ** 0.5
        rose = observed < -params.z * sd  # no power is needed to see the loss go up
        if expected < params.power * sd and not rose:
            few = len(after) < params.most
            missing = "the loss is too noisy to tell; a larger probe would"
            return Finding("" if few else "cannot_tell", key, len(after), missing=missing)
        short = (expected - observed) / sd > params.z and observed < params.lost_share * expected
        lost = rose or short
        self.bad_in_a_row = self.bad_in_a_row + 1 if lost else 0
        outcome: Outcome = ""
        if self.bad_in_a_row >= params.times:
            outcome = "fell"
        elif observed >= params.kept_share * expected:
            outcome = "as_before"
        elif len(after) >= params.most:
            outcome = "cannot_tell"
        missing = "progress lies between the two" if outcome == "cannot_tell" else ""
        return Finding(outcome, key, len(after), expected, observed, missing)

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Aftermath:
        series = {name: BlockSeries.restored(state[name]) for name in ("heldout", "train")}
        return cls(**{**state, **series})


def _fallen(fit: Fit, t_W: Any, loss_W: Any) -> float:
    """The drop since where the fit had the loss at the window's start, by the window's end."""
    return fit.at(float(t_W[0])) - float(np.median(loss_W[-3:]))
