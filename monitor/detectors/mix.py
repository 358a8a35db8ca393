"""Whether what is fed is still what was fed at first: shares of sources, lengths, unigrams."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from monitor.detectors.base import StepFrame
from monitor.detectors.robust import MAD_TO_SD, median
from monitor.detectors.saying import finite

NEEDS = (
    "batch_unigram_kl", "source_share@*", "source_share/*", "doc_len", "doc_len/*", "doc_len@*",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MixParams:
    """``reference_points``: batches the fixed reference is made of. ``window_points``: the median
    of so many is compared with it. ``shift_sd``: beyond this many standard errors, and ...
    ``share_abs``, ``share_rel``: five points of a hundred and a quarter of a source's share.
    ``length_rel``: a fifth of the length. ``kl_nats``: and, for unigrams, this much further from
    their reference. ``points_in_a_row``: shards come in runs; a shift outlasts them."""

    reference_points: int = 64
    window_points: int = 32
    shift_sd: float = 6.0
    share_abs: float = 0.05
    share_rel: float = 0.25
    length_rel: float = 0.20
    kl_nats: float = 0.05
    points_in_a_row: int = 32


@dataclass(slots=True)
class Feed:
    """One series of the mix: its reference (``before`` with ``noise`` of one batch, once the first
    batches have told it), its latest values, and whether it has shifted."""

    first: list[float] = field(default_factory=list)
    told: bool = False
    before: float = 0.0
    noise: float = 0.0
    window: list[list[float]] = field(default_factory=list)
    away: int = 0
    shifted: bool = False
    onset_step: int | None = None
    onset_at: float | None = None

    def tell(self) -> None:
        """The first batches make the reference, once and for all."""
        self.before = median(self.first)
        self.noise = MAD_TO_SD * median([abs(value - self.before) for value in self.first])
        self.told, self.first = True, []

    @property
    def now(self) -> float:
        return median([point[2] for point in self.window])


class MixWatch:
    """Compares the mix with a fixed reference. ``changes`` counts shifts and returns."""

    def __init__(self, params: MixParams | None = None) -> None:
        self.params = params or MixParams()
        self.feeds: dict[str, Feed] = {}
        self.changes = 0

    def see(self, frame: StepFrame) -> list[str]:
        """Take in a step; the keys that were measured and can be judged. A declared change of the
        mix makes a new reference."""
        if any(e.name == "data_mix" and e.kind in ("phase", "event") for e in frame.events):
            self.feeds = {}
        ready = []
        for key in frame.values:
            value = finite(frame, key) if key.startswith(MIX_NAMES) else None
            if value is not None and self._take(frame, key, value):
                ready.append(key)
        return ready

    def _take(self, frame: StepFrame, key: str, value: float) -> bool:
        feed = self.feeds.setdefault(key, Feed())
        if not feed.told:
            feed.first.append(value)
            if len(feed.first) == self.params.reference_points:
                feed.tell()
            return False
        feed.window.append([float(frame.step), frame.t, value])
        del feed.window[: -self.params.window_points]
        if len(feed.window) < self.params.window_points:
            return False
        self._judge(key, feed)
        return True

    def _judge(self, key: str, feed: Feed) -> None:
        away = abs(feed.now - feed.before) > self._limit(key, feed)
        if away and feed.away == 0:
            # The median crossed when half of the window had: it began there.
            half = feed.window[len(feed.window) // 2]
            feed.onset_step, feed.onset_at = int(half[0]), half[1]
        feed.away = feed.away + 1 if away else 0
        shifted = feed.away >= self.params.points_in_a_row if not feed.shifted else away
        if shifted != feed.shifted:
            feed.shifted = shifted
            self.changes += 1

    def _limit(self, key: str, feed: Feed) -> float:
        params, before = self.params, feed.before
        error = 1.25 * feed.noise * math.sqrt(1 / len(feed.window) + 1 / params.reference_points)
        if key.startswith("source_share"):
            material = max(params.share_abs, params.share_rel * before)
            # A source that had less than that can still go away altogether.
            material = min(material, max(0.5 * before, params.share_abs / 5))
        elif key.startswith("doc_len"):
            material = params.length_rel * before
        else:
            material = params.kl_nats
        return max(material, params.shift_sd * error)

    def snapshot(self) -> dict[str, Any]:
        feeds = {key: asdict(feed) for key, feed in self.feeds.items()}
        return {"feeds": feeds, "changes": self.changes}

    def restore(self, state: dict[str, Any]) -> None:
        self.feeds = {key: Feed(**feed) for key, feed in state["feeds"].items()}
        self.changes = state["changes"]


MIX_NAMES = ("batch_unigram_kl", "source_share", "doc_len")
