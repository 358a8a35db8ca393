"""Rules in use elsewhere, on the very same series: what they would have said.

An alarm is a change from quiet to firing, at a point's step. Each sees the train loss (or, where a
run has none, its held-out loss) and the gradient norm; what it needs and does not get, it does not
judge. Sources: OLMo-core's ``SkipStepOptimizer`` (6 standard deviations of the last 128), ZClip
(arXiv 2504.02507: z of an exponential mean with alpha 0.97, above 2.5), llm-foundry's
``KillLossSpike`` (twice the mean of the last 100, more than 4 times in a row), and plain patience.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.domain.log import LogEntry

WARMUP_POINTS = 128
"""Nobody is asked before: every one of them would fire in the first steps of any run."""
LOSSES = ("loss/train", "loss/heldout", "loss/probe")
GRADIENT = "grad_norm/total"


@dataclass(frozen=True, slots=True)
class Curve:
    """Steps and finite values of the loss, and of the gradient norm where it is told."""

    loss: tuple[tuple[int, float], ...]
    grad: tuple[tuple[int, float], ...]


def curve_of(log: Sequence[LogEntry]) -> Curve:
    """The loss that a rule of one series would be given, in the order it arrives."""
    for key in LOSSES:
        loss = points_of(log, key)
        if loss:
            return Curve(loss, points_of(log, GRADIENT))
    return Curve((), points_of(log, GRADIENT))


def points_of(log: Sequence[LogEntry], key: str) -> tuple[tuple[int, float], ...]:
    """The finite points of one series."""
    out: list[tuple[int, float]] = []
    for entry in log:
        for frame in entry.frames:
            column = frame.columns.get(key)
            if column is None:
                continue
            given = (
                column.present if column.present is not None else np.ones(len(frame.steps), bool)
            )
            good = given & np.isfinite(column.values)
            out += zip(frame.steps[good].tolist(), column.values[good].tolist(), strict=True)
    return tuple(out)


Fires = Iterator[bool]
Points = Sequence[tuple[int, float]]


def sigma_rule(points: Points, sigmas: float, window: int = 128) -> Fires:
    """So many standard deviations above the mean of the last points."""
    kept: deque[float] = deque(maxlen=window)
    total = squares = 0.0
    for _, value in points:
        n = len(kept)
        if n == window:
            mean = total / n
            deviation = math.sqrt(max(squares / n - mean * mean, 0.0))
            yield value > mean + sigmas * deviation
            total, squares = total - kept[0], squares - kept[0] ** 2
        else:
            yield False
        kept.append(value)
        total, squares = total + value, squares + value * value


def not_decreasing(points: Points, back: int = 10, share: float = 0.001) -> Fires:
    """Not 0.1 % below the value of 10 points ago."""
    for place, (_, value) in enumerate(points):
        yield place >= back and value > (1.0 - share) * points[place - back][1]


def no_new_best(
    points: Points, patience: int = 500, alpha: float = 0.02, rel: float = 1e-4
) -> Fires:
    """The exponential mean has had no new best in 500 points."""
    mean, best, since = math.nan, math.inf, 0
    for _, value in points:
        mean = value if math.isnan(mean) else mean + alpha * (value - mean)
        since += 1
        if mean < best - rel * abs(best) or math.isinf(best):
            best, since = mean, 0
        yield since >= patience


def zclip(points: Points, z: float = 2.5, alpha: float = 0.97) -> Fires:
    """The gradient norm's z score against exponential mean and variance."""
    mean = variance = 0.0
    for place, (_, value) in enumerate(points):
        if place < 25:
            mean += (value - mean) / (place + 1)
            variance += ((value - mean) ** 2 - variance) / (place + 1)
            yield False
            continue
        deviation = math.sqrt(max(variance, 1e-24))
        hot = (value - mean) / deviation > z
        yield hot
        # What is clipped teaches the mean no more than the threshold does.
        taken = mean + z * deviation if hot else value
        mean = alpha * mean + (1.0 - alpha) * taken
        variance = alpha * variance + (1.0 - alpha) * (taken - mean) ** 2


def kill_loss_spike(points: Points, window: int = 100, ratio: float = 2.0, most: int = 4) -> Fires:
    """Twice the running mean, more than 4 points in a row."""
    kept: deque[float] = deque(maxlen=window)
    in_a_row, total = 0, 0.0
    for _, value in points:
        full = len(kept) == window
        in_a_row = in_a_row + 1 if full and value >= ratio * total / window else 0
        yield in_a_row > most
        total += value - (kept[0] if full else 0.0)
        kept.append(value)


def olmo(curve: Curve) -> list[int]:
    """Loss or gradient norm, 6 standard deviations."""
    on_loss = alarms(curve.loss, sigma_rule(curve.loss, 6.0))
    return sorted({*on_loss, *alarms(curve.grad, sigma_rule(curve.grad, 6.0))})


def alarms(points: Points, fires: Fires) -> list[int]:
    """Steps at which a rule begins to fire, after the warm-up."""
    out, before = [], False
    for place, ((step, _), now) in enumerate(zip(points, fires, strict=True)):
        if now and not before and place >= WARMUP_POINTS:
            out.append(step)
        before = now
    return out


def judged_by(curve: Curve) -> dict[str, list[int]]:
    """Alarms of every rule that gets what it needs."""
    given = {"ZClip z above 2.5": curve.grad}
    return {n: rule(curve) for n, rule in BASELINES.items() if given.get(n, curve.loss)}


BASELINES: dict[str, Callable[[Curve], list[int]]] = {
    "z above 6 of 128": lambda c: alarms(c.loss, sigma_rule(c.loss, 6.0)),
    "not 0.1 % lower in 10": lambda c: alarms(c.loss, not_decreasing(c.loss)),
    "no new best mean in 500": lambda c: alarms(c.loss, no_new_best(c.loss)),
    "ZClip z above 2.5": lambda c: alarms(c.grad, zclip(c.grad)),
    "OLMo-core 6 sigma": olmo,
    "KillLossSpike": lambda c: alarms(c.loss, kill_loss_spike(c.loss)),
}
