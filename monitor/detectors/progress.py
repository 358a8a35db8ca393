"""Expected against observed progress of a loss curve, with power. Pure arithmetic.

A healthy loss falls like ``a + b t^-c``. The fit on what lies before a window says how much the
loss should fall within it (E); the window says how much it did (O, Theil-Sen). Of the two no claim
is made unless E stands out of the noise: that is the power of the test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monitor.detectors.robust import median, noise_sd, theil_sen
from monitor.domain.log import Floats

EXPONENTS_C = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4])
"""Scaling-law exponents lie about 0.1 to 0.5; early parts of small runs fall faster."""

SIGMA_FLOOR = 3e-4
"""Noise is never taken below this share of the level: a fixed probe repeats itself exactly."""


@dataclass(frozen=True, slots=True)
class Fit:
    """``a + b t^-c`` with the noise ``sigma`` of one block about it."""

    a: float
    b: float
    c: float
    sigma: float

    def at(self, t: float) -> float:
        return float(self.a + self.b * t**-self.c)

    def drop(self, begin: float, end: float) -> float:
        """How much the loss is expected to fall from t = begin to t = end."""
        return self.at(begin) - self.at(end)


@dataclass(frozen=True, slots=True)
class Window:
    """The judgement of one window: E, O and their noise, all in nats."""

    expected: float
    observed: float
    sd: float
    first: int
    fit: Fit

    @property
    def power(self) -> float:
        return self.expected / self.sd

    @property
    def z(self) -> float:
        return (self.expected - self.observed) / self.sd


def fit_decay(t_N: Floats, loss_N: Floats) -> Fit | None:
    """Weighted least squares over a grid of exponents; recent blocks weigh more. None: no decay.

    The noise is the larger of what successive blocks and what the residuals say, so that a curve
    the formula does not fit makes the test weaker, not louder.
    """
    weights_N = t_N / t_N[-1]
    total = weights_N.sum()
    x_CN = t_N[None, :] ** -EXPONENTS_C[:, None]
    x_mean_C = (x_CN * weights_N).sum(axis=1) / total
    y_mean = float((loss_N * weights_N).sum() / total)
    dx_CN, dy_N = x_CN - x_mean_C[:, None], loss_N - y_mean
    spread_C = (weights_N * dx_CN**2).sum(axis=1)
    b_C = (weights_N * dx_CN * dy_N).sum(axis=1) / np.maximum(spread_C, 1e-300)
    residual_CN = dy_N - b_C[:, None] * dx_CN
    error_C = np.where(b_C > 0, (weights_N * residual_CN**2).sum(axis=1), np.inf)
    best = int(np.argmin(error_C))
    if not math.isfinite(float(error_C[best])):
        return None
    b = float(b_C[best])
    spread = math.sqrt(float(error_C[best]) / float(total))
    sigma = max(noise_sd(residual_CN[best]), spread, SIGMA_FLOOR * abs(y_mean))
    return Fit(y_mean - b * float(x_mean_C[best]), b, float(EXPONENTS_C[best]), sigma)


def stopped_at(t_N: Floats, loss_N: Floats, fewest: int) -> int:
    """The block from which on the loss stands still: ``a + b min(t, T)^-c`` for the best T.

    At least ``fewest`` blocks lie before it and three after. Cheap enough for once a plateau, not
    for every block.
    """
    count, best, at = len(t_N), math.inf, min(fewest, len(t_N) - 1)
    for c in EXPONENTS_C:
        x_N = t_N**-c
        for first in range(fewest, count - 2):
            held_N = np.where(np.arange(count) < first, x_N, x_N[first])
            dx_N, dy_N = held_N - held_N.mean(), loss_N - loss_N.mean()
            slope = float(dx_N @ dy_N) / max(float(dx_N @ dx_N), 1e-300)
            error = float(((dy_N - slope * dx_N) ** 2).sum()) if slope > 0.0 else math.inf
            if error < best:
                best, at = error, first
    return at


def observed_drop(t_W: Floats, loss_W: Floats) -> float:
    """How much the loss fell within a window; negative where it rose."""
    return -theil_sen(t_W, loss_W) * float(t_W[-1] - t_W[0])


def judge_window(t_N: Floats, loss_N: Floats, blocks: int, fit: Fit | None) -> Window | None:
    """Judge the last ``blocks`` blocks; ``fit`` is that of what came before, or a frozen one."""
    if fit is None:
        return None
    t_W, loss_W = t_N[-blocks:], loss_N[-blocks:]
    sd = fit.sigma * math.sqrt(12.0 / blocks)
    # No loss falls below zero, whatever the formula says.
    expected = min(fit.drop(float(t_W[0]), float(t_W[-1])), 0.5 * float(loss_W[0]))
    if fit.at(float(t_W[-1])) <= 0.0:
        return None
    return Window(expected, observed_drop(t_W, loss_W), sd, len(t_N) - blocks, fit)


@dataclass(slots=True)
class BlockSeries:
    """A loss series as block medians, at most ``most`` of them: then pairs are merged.

    ``t`` is what progress is counted in (tokens, or steps where tokens are not told).
    """

    points_per_block: int = 1
    most: int = 240
    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    ts: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    waiting: list[list[float]] = field(default_factory=list)

    def add(self, step: int, at: float, t: float, loss: float) -> bool:
        """Take a point; True when it completed a block."""
        self.waiting.append([float(step), at, t, loss])
        if len(self.waiting) < self.points_per_block:
            return False
        self.steps.append(int(self.waiting[0][0]))
        self.times.append(self.waiting[0][1])
        self.ts.append(sum(point[2] for point in self.waiting) / len(self.waiting))
        self.losses.append(median([point[3] for point in self.waiting]))
        self.waiting = []
        if len(self.losses) >= self.most:
            self._merge()
        return True

    def _merge(self) -> None:
        even = len(self.losses) - len(self.losses) % 2
        self.steps, self.times = self.steps[:even:2], self.times[:even:2]
        self.ts = [(a + b) / 2 for a, b in zip(self.ts[:even:2], self.ts[1:even:2], strict=True)]
        self.losses = [
            (a + b) / 2 for a, b in zip(self.losses[:even:2], self.losses[1:even:2], strict=True)
        ]
        self.points_per_block *= 2

    def cut(self, first_step: int) -> None:
        """Forget what lies at or beyond a step: another attempt owns it now."""
        keep = sum(step < first_step for step in self.steps)
        del self.steps[keep:], self.times[keep:], self.ts[keep:], self.losses[keep:]
        self.waiting = []

    def clear(self) -> None:
        self.cut(-1)

    def arrays(self, drop_share: float = 0.0) -> tuple[Floats, Floats]:
        """Positions and losses, without the first ``drop_share`` of the blocks."""
        begin = int(drop_share * len(self.losses))
        return np.asarray(self.ts[begin:], np.float64), np.asarray(self.losses[begin:], np.float64)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> BlockSeries:
        return cls(**state)
