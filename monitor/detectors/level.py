"""Whether a loss of heavy tails stands on another level: medians of sixteen against their past.

Where single batches swing by half, no single point says anything. The median of sixteen does: it
is compared with the medians of sixteen the run had before, at the same distance from its level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monitor.detectors.rolling import Rolling

QUARTILES_TO_SD = 1.0 / 1.349
MEMORISED_NATS = 0.05
"""Below this, a level means nothing."""


@dataclass(frozen=True, slots=True)
class LevelParams:
    """``points``: of a median; ``every``: so many points apart they are learnt. ``level_points``:
    the level is the median of so many before. ``kept``: medians looked back on, at least
    ``fewest``. ``sd``, ``tail``: beyond six of their standard deviations, and twice as far as any
    of them: at five, and a quarter further, three sound runs of 500,000 points did that.
    ``share``: and by so much of the level."""

    points: int = 16
    every: int = 8
    level_points: int = 128
    kept: int = 128
    fewest: int = 12
    sd: float = 6.0
    tail: float = 2.0
    share: float = 0.08
    floor_nats: float = 0.03


@dataclass(frozen=True, slots=True)
class Level:
    """The median of the latest points, the level before them, and the limit above it (nats)."""

    now: float
    level: float
    limit: float

    @property
    def is_up(self) -> bool:
        return self.level > MEMORISED_NATS and self.now - self.level > self.limit


class LevelGauge:
    """Keeps the latest points, the level before them, and how far medians usually are from it."""

    __slots__ = ("_count", "_gaps", "_latest", "_params", "_past", "_waiting")

    def __init__(self, params: LevelParams) -> None:
        self._params = params
        self._latest = Rolling(params.points)
        self._past = Rolling(params.level_points)
        self._gaps = Rolling(params.kept)
        self._waiting: list[float] = []
        self._count = 0

    def see(self, loss: float, *, learn: bool = True) -> Level | None:
        """The level with this loss, or None while too little is known."""
        params = self._params
        if learn:
            oldest = self._latest.oldest if len(self._latest) == params.points else None
            if oldest is not None:
                self._past.add(oldest)
        self._latest.add(loss)
        if len(self._past) < params.level_points // 2:
            return None
        now, level = self._latest.median(), self._past.median()
        found = self._measure(now, level) if len(self._gaps) >= params.fewest else None
        self._count += 1
        if learn and self._count % params.every == 0:
            # Two medians wait: those judged must not be among those they are judged by.
            self._waiting.append(now - level)
            if len(self._waiting) > 2:
                self._gaps.add(self._waiting.pop(0))
        return found

    def _measure(self, now: float, level: float) -> Level:
        params, gaps = self._params, self._gaps
        usual = gaps.median()
        least = max(params.share * abs(level), params.floor_nats)
        if now - level - usual <= least:  # almost always: the rest need not be known
            return Level(now, level + usual, least)
        sd = (gaps.quantile(0.75) - gaps.quantile(0.25)) * QUARTILES_TO_SD
        limit = max(
            params.sd * sd, params.tail * (gaps.quantile(1.0) - usual), least,
        )  # fmt: skip
        return Level(now, level + usual, limit)

    def forget(self) -> None:
        """Begin anew: another attempt, or other data."""
        self._latest.clear()
        self._past.clear()
        self._gaps.clear()
        self._waiting, self._count = [], 0

    def snapshot(self) -> dict[str, Any]:
        return {
            "latest": self._latest.snapshot(),
            "past": self._past.snapshot(),
            "gaps": self._gaps.snapshot(),
            "waiting": list(self._waiting),
            "count": self._count,
        }

    def restore(self, state: dict[str, Any]) -> None:
        params = self._params
        self._latest = Rolling(params.points, state["latest"])
        self._past = Rolling(params.level_points, state["past"])
        self._gaps = Rolling(params.kept, state["gaps"])
        self._waiting, self._count = list(state["waiting"]), state["count"]
