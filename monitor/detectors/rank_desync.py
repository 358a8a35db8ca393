"""Rank desync: replicas of one model that do not hold the same weights any more."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.ranks import by_rank, rank_patterns, ranks_text
from monitor.detectors.saying import finite, said


@dataclass(frozen=True, slots=True)
class Params:
    """``spread``: replicas are equal bit for bit or they are not; any difference counts."""

    spread: float = 0.0


@dataclass(slots=True)
class _Memory:
    attempt: str = ""
    equal_step: int | None = None
    equal_at: float = 0.0
    onset_step: int | None = None
    onset_at: float | None = None
    first_spread: float = 0.0
    resumed: bool = False


class RankDesync(Detector):
    """Critical at the first sample whose checksums differ: replicas never come together again."""

    name: ClassVar[str] = "rank_desync"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "replicas are no longer equal"
    needs: ClassVar[tuple[str, ...]] = (*rank_patterns("checksum"), "checksum_spread")
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=3)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Compare the checksums of this step, from the very first sample."""
        if frame.attempt != self._memory.attempt:
            self._memory = _Memory(frame.attempt, resumed=self._memory.attempt != "")
        sums = by_rank(frame, "checksum")
        spread = finite(frame, "checksum_spread")
        if len(sums) >= 2:
            largest = max(map(abs, sums.values())) or 1.0
            spread = (max(sums.values()) - min(sums.values())) / largest
        if spread is None:
            return []
        if spread <= self.params.spread:
            return self._equal(frame)
        return [self._unequal(frame, spread, sums)]

    def _equal(self, frame: StepFrame) -> list[Verdict]:
        memory = self._memory
        was_bad = memory.onset_step is not None
        memory.equal_step, memory.equal_at = frame.step, frame.t
        memory.onset_step, memory.onset_at = None, None
        return [said(self, frame, "calm", "info", "equal")] if was_bad else []

    def _unequal(self, frame: StepFrame, spread: float, sums: dict[int, float]) -> Verdict:
        memory = self._memory
        if memory.onset_step is None:
            memory.onset_step, memory.onset_at = frame.step, frame.t
            if memory.equal_step is not None:
                # It may have begun with the step after the last sample that was equal.
                memory.onset_step, memory.onset_at = memory.equal_step + 1, memory.equal_at
            memory.first_spread = spread
        odd = _odd_ones(sums)
        who = f"{ranks_text(odd)} against the others" if odd else "which rank is not known"
        since = memory.equal_step
        before = f"equal until step {since:,}" if since is not None else "never seen equal"
        evidence = Evidence(
            rule="checksum",
            version=self.version,
            value=spread,
            threshold=self.params.spread,
            unit="relative difference",
            n=max(len(sums), 2),
            onset_step=memory.onset_step,
            onset_at=memory.onset_at,
            series=("checksum_spread", *(f"checksum@rank{rank}" for rank in odd[:7])),
            numbers=(("difference of the checksums", spread, "", before),),
            summary=f"The replicas' weights differ by {spread:.2g} ({before}; {who}). Gradients "
            "may agree again, the weights will not: from here each rank trains its own model.",
            causes=self._causes(since),
            first_action="stop the run and go back to the last checkpoint before this step; look "
            "for a parameter that the all-reduce leaves out.",
            clears=f"{self.hold.calm} samples in a row with equal checksums.",
        )
        return said(self, frame, "bad", "critical", "checksums_differ", evidence=evidence)

    def _causes(self, equal_step: int | None) -> tuple[Cause, ...]:
        grows = self._memory.onset_step is not None and self._memory.first_spread > 0.0
        left_out = Cause(
            "a parameter's gradient is left out of the all-reduce, or one rank skipped an update",
            signs_seen=int(equal_step is not None) + int(grows),
            signs_of=2,
            why="they were equal before" if equal_step is not None else "",
        )
        loaded = Cause(
            "the ranks began with different weights: another seed, or another checkpoint loaded",
            signs_seen=2 * int(equal_step is None),
            signs_of=2,
            why="they were never seen equal" + (" in this attempt" if self._memory.resumed else ""),
        )
        return tuple(sorted((left_out, loaded), key=lambda cause: -cause.signs_seen))

    def snapshot(self) -> dict[str, Any]:
        return asdict(self._memory)

    def restore(self, state: dict[str, Any]) -> None:
        self._memory = _Memory(**state)


def _odd_ones(sums: dict[int, float]) -> list[int]:
    """The ranks that are not with the largest party; with two ranks nobody can tell who is odd."""
    if len(sums) < 3:
        return []
    (usual, count), *_ = Counter(sums.values()).most_common(1)
    return [rank for rank, value in sums.items() if value != usual] if count > 1 else []
