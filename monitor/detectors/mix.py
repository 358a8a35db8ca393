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
    """``reference_points``: batches the fixed reference is made of. ``window_points``: the mean
    (shares) or median of so many is compared with it. ``shift_sd``: beyond this many standard
    errors, and ... ``share_abs``, ``share_rel``: five points of a hundred and a quarter of a share.
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
    now: float = 0.0
    window: list[list[float]] = field(default_factory=list)
    away: int = 0
    shifted: bool = False
    onset_step: int | None = None
    onset_at: float | None = None

    def tell(self, key: str) -> None:
        """The first batches make the reference, once and for all."""
        self.before = _centre(key, self.first)
        off = [abs(value - self.before) for value in self.first]
        if key.startswith(SHARE):
            self.noise = math.sqrt(sum(value * value for value in off) / len(off))
        else:
            self.noise = MAD_TO_SD * median(off)
        self.told, self.first = True, []


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
                feed.tell(key)
            return False
        feed.window.append([float(frame.step), frame.t, value])
        # As far back as a shift that is told now can have begun.
        del feed.window[: -(self.params.window_points + self.params.points_in_a_row)]
        if len(feed.window) < self.params.window_points:
            return False
        self._judge(key, feed)
        return True

    def _judge(self, key: str, feed: Feed) -> None:
        latest = feed.window[-self.params.window_points :]
        feed.now = _centre(key, [point[2] for point in latest])
        away = abs(feed.now - feed.before) > self._limit(key, feed)
        feed.away = feed.away + 1 if away else 0
        shifted = feed.away >= self.params.points_in_a_row if not feed.shifted else away
        if shifted and not feed.shifted:
            first = feed.window[_split([point[2] for point in feed.window])]
            feed.onset_step, feed.onset_at = int(first[0]), first[1]
        if shifted != feed.shifted:
            feed.shifted = shifted
            self.changes += 1

    def _limit(self, key: str, feed: Feed) -> float:
        params, before = self.params, feed.before
        error = (
            1.25 * feed.noise * math.sqrt(1 / params.window_points + 1 / params.reference_points)
        )
        if key.startswith(SHARE):
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


def _centre(key: str, values: list[float]) -> float:
    """The mean of shares, which are counts of few rows; the median of all else, which has tails."""
    return sum(values) / len(values) if key.startswith(SHARE) else median(values)


def _split(values: list[float]) -> int:
    """Where the values are best cut in two of different mean: the index of the second part."""
    total, count, left, best, at = sum(values), len(values), 0.0, -1.0, 0
    for index in range(1, count):
        left += values[index - 1]
        apart = (total - left) / (count - index) - left / index
        weight = apart * apart * index * (count - index)
        if weight > best:
            best, at = weight, index
    return at


SHARE = "source_share"
MIX_NAMES = ("batch_unigram_kl", SHARE, "doc_len")
