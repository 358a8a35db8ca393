"""The mix of what is fed shifts, and nobody has said that it should."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import (
    Cause,
    Detector,
    Evidence,
    Hold,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.detectors.mix import NEEDS, Feed, MixParams, MixWatch
from monitor.detectors.saying import said, unsure


@dataclass(frozen=True, slots=True)
class Params:
    """``warn_share``: a source at less than half of its share is starved, not shuffled. Lengths
    and unigrams that move are what every new shard does: they are information, and what they do
    to the model is told by who sees it. ``stall_back_steps``: a stall this long before may have
    dropped the source."""

    warn_share: float = 0.5
    stall_back_steps: int = 500
    mix: MixParams = field(default_factory=MixParams)


@dataclass(slots=True)
class _Memory:
    attempt: str = ""
    stalls: list[list[float]] = field(default_factory=list)


class DataDrift(Detector):
    """Information when the mix moved away from its reference, a warning when a source starves."""

    name: ClassVar[str] = "data_drift"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "the data mix has shifted"
    needs: ClassVar[tuple[str, ...]] = NEEDS
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=32)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._mix = MixWatch(self.params.mix)
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each series of the mix that this step brings."""
        memory = self._memory
        if memory.attempt and frame.attempt != memory.attempt:
            # What is fed may begin anew with an attempt, what it is made of may not.
            for feed in self._mix.feeds.values():
                feed.window, feed.away = [], 0
        memory.attempt = frame.attempt
        for event in frame.events:
            if event.name == "data_stall":
                memory.stalls.append([float(frame.step), float(event.data.get("wait_s") or 0.0)])
                del memory.stalls[:-8]
        known = len(self._mix.feeds)
        ready = self._mix.see(frame)
        if not ready:
            return [self._too_early(frame)] if known and frame.values else []
        return [self._verdict(frame, key, self._mix.feeds[key]) for key in ready]

    def _too_early(self, frame: StepFrame) -> Verdict:
        params = self.params.mix
        most = max(
            (params.reference_points if feed.told else len(feed.first)) + len(feed.window)
            for feed in self._mix.feeds.values()
        )
        missing = params.reference_points + params.window_points - most
        return unsure(self, frame, f"needs about {max(missing, 1)} more batches")

    def _verdict(self, frame: StepFrame, key: str, feed: Feed) -> Verdict:
        subject = key.partition("@")[2] or key
        if not feed.shifted:
            return said(self, frame, "calm", "info", "as_at_first", subject=subject)
        severity: Severity = "warning" if self._is_far(key, feed) else "info"
        onset = feed.onset_step if feed.onset_step is not None else frame.step
        unit = {"batch_unigram_kl": "nats", "doc_len": "tokens"}.get(key.split("@")[0], "")
        evidence = Evidence(
            rule="shift",
            version=self.version,
            value=feed.now,
            threshold=feed.before,
            unit=unit,
            n=self.params.mix.window_points,
            onset_step=onset,
            onset_at=feed.onset_at,
            series=(key, "loss/train", "loss/probe"),
            numbers=((key, feed.now, unit, f"at first {feed.before:.4g}"),),
            summary=f"{key} went from {feed.before:.4g} to {feed.now:.4g} since step {onset:,}, "
            "and no change of the data mix was declared.",
            causes=(self._cause(key, feed, onset),),
            first_action="look at the loader's sources and at the order of the shards; a change "
            "that is meant is declared with phase('data_mix').",
            clears="32 batches in a row near the reference.",
        )
        title = f"{self.title} ({subject})" if subject else self.title
        return said(
            self, frame, "bad", severity, "shift", subject=subject, title=title, evidence=evidence
        )  # fmt: skip

    def _is_far(self, key: str, feed: Feed) -> bool:
        return key.startswith("source_share") and feed.now < self.params.warn_share * feed.before

    def _cause(self, key: str, feed: Feed, onset: int) -> Cause:
        back = self.params.stall_back_steps
        stalls = [s for s in self._memory.stalls if onset - back <= s[0] <= onset]
        gone = key.startswith("source_share") and feed.now < 0.1 * feed.before
        if gone:
            text = "the loader has dropped this source: it ran dry, or its worker died"
            if stalls:
                text += f", after a {stalls[-1][1]:.1f} s stall at step {int(stalls[-1][0]):,}"
            return Cause(text, 2 if stalls else 1, 2, "next to nothing of it is served any more")
        others = [name for name, one in self._mix.feeds.items() if one.shifted and name != key]
        if others:
            why = f"{', '.join(sorted(others)[:3])} shifted as well"
            return Cause("the mix of sources is another one", 2, 2, why)
        text = "unexplained: no declared change, no stall, no other series of the mix moved"
        return Cause(text, 0, 1)

    def snapshot(self) -> dict[str, Any]:
        return {"mix": self._mix.snapshot(), "memory": asdict(self._memory)}

    def restore(self, state: dict[str, Any]) -> None:
        self._mix.restore(state["mix"])
        self._memory = _Memory(**state["memory"])
