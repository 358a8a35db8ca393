"""How far a loss stands above its own recent past: the measure behind spikes and divergences.

The reference is a running median, corrected by how far the loss usually is from it (a falling loss
is always below), and the spread of those distances: of the points before the last few, so that an
excursion cannot teach itself in while it is being judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monitor.detectors.rolling import Rolling

QUARTILES_TO_SD = 1.0 / 1.349
"""Distance of the quartiles -> standard deviation, for a normal distribution."""


@dataclass(frozen=True, slots=True)
class HeatParams:
    """``z`` and ``share``: a loss is hot when it stands 6 robust standard deviations and 3 % above
    its median: one healthy batch in a thousand does. ``tail_share``, ``tail_ratio``: and half as
    far again as all but 1 % of what its own past has seen, because losses of single batches have
    heavy tails. ``floor_nats``: below this rise nothing is lost; memorised losses swing by it.
    ``level_points``, ``spread_points``: long enough to be steady, short enough to follow a falling
    loss. ``lag_points``: the judged points themselves stay out of the reference.
    ``winsor_sd``: what is beyond counts as this, so that single hot batches do not widen it.
    ``fewest_points``: with fewer the tail is unknown. ``sd_floor_share``: smoothed losses have
    next to no noise of their own."""

    z: float = 6.0
    share: float = 0.03
    tail_share: float = 0.99
    tail_ratio: float = 1.5
    floor_nats: float = 0.03
    level_points: int = 64
    spread_points: int = 256
    lag_points: int = 8
    winsor_sd: float = 3.0
    fewest_points: int = 64
    sd_floor_share: float = 0.001


@dataclass(frozen=True, slots=True)
class Heat:
    """One loss against its reference. ``z`` in robust standard deviations."""

    loss: float
    level: float
    sd: float
    limit: float

    @property
    def z(self) -> float:
        return (self.loss - self.level) / self.sd

    @property
    def hot(self) -> bool:
        return self.loss - self.level > self.limit


class HeatGauge:
    """Measures each loss against the points before it. O(log n) a point."""

    __slots__ = ("_level", "_params", "_spread", "_waiting")

    def __init__(self, params: HeatParams) -> None:
        self._params = params
        self._level = Rolling(params.level_points)
        self._spread = Rolling(params.spread_points)
        self._waiting: list[list[float]] = []

    @property
    def points_missing(self) -> int:
        """How many more points the reference needs before anything can be told."""
        return max(self._params.fewest_points - len(self._spread), 0)

    def see(self, loss: float, *, learn: bool = True) -> Heat | None:
        """The heat of a finite loss, or None while too little is known. ``learn``: not while an
        excursion is open, whose level must not become what is usual."""
        median = self._level.median()
        heat = self._measure(loss, median)
        if learn:
            # The first points have no level yet: they are their own.
            known = (median, heat.level, heat.sd) if heat else (loss, loss, 0.0)
            self._waiting.append([loss, *known])
            if len(self._waiting) > self._params.lag_points:
                self._learn(*self._waiting.pop(0))
        return heat if not self.points_missing else None

    def _measure(self, loss: float, median: float) -> Heat | None:
        params, spread = self._params, self._spread
        if len(self._level) < params.lag_points:
            return None
        usual = spread.median()
        level = median + usual
        sd = max(
            (spread.quantile(0.75) - spread.quantile(0.25)) * QUARTILES_TO_SD,
            params.sd_floor_share * abs(level), 1e-9,
        )  # fmt: skip
        limit = max(
            params.z * sd, params.share * abs(level), params.floor_nats,
            params.tail_ratio * (spread.quantile(params.tail_share) - usual),
        )  # fmt: skip
        return Heat(loss, level, sd, limit)

    def _learn(self, loss: float, median: float, level: float, sd: float) -> None:
        if sd <= 0.0:
            self._level.add(loss)
            return
        self._level.add(min(loss, level + self._params.winsor_sd * sd))
        # Quartiles need no taming; the tail is learnt up to where more would say nothing.
        self._spread.add(min(loss, level + 4.0 * self._params.z * sd) - median)

    def forget(self) -> None:
        """Begin anew: another attempt, or declaredly other data."""
        self._level.clear()
        self._spread.clear()
        self._waiting = []

    def snapshot(self) -> dict[str, Any]:
        return {
            "level": self._level.snapshot(),
            "spread": self._spread.snapshot(),
            "waiting": [list(point) for point in self._waiting],
        }

    def restore(self, state: dict[str, Any]) -> None:
        params = self._params
        self._level = Rolling(params.level_points, state["level"])
        self._spread = Rolling(params.spread_points, state["spread"])
        self._waiting = [list(point) for point in state["waiting"]]
