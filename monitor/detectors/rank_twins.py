"""Rank twins: ranks that must differ, in their data or in their shard of a tensor, and do not."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.ranks import by_rank, rank_patterns, ranks_text
from monitor.detectors.saying import said


@dataclass(frozen=True, slots=True)
class Params:
    """``bad_of`` samples of the last ``seen``: one equal batch may be padding, three are twins."""

    bad_of: int = 3
    seen: int = 5


@dataclass(slots=True)
class _Watched:
    """One kind of thing that must differ: recent samples, and where the present spell began.
    ``different``: [step, time] after the last sample that was as it must be."""

    recent: list[bool] = field(default_factory=list)
    different_seen: bool = False
    different: list[float] = field(default_factory=list)
    onset_step: int | None = None
    onset_at: float | None = None
    ranks: list[int] = field(default_factory=list)


SUBJECTS = {"batches": "batch_hash", "shards": "shard_checksum"}
WORDS = {
    "batches": ("serve the very same batch", "batch_hash"),
    "shards": ("hold the very same shard of the weights", "shard_checksum"),
}
TITLES = {"batches": "train on the same batches", "shards": "hold the same shard of the weights"}


FIRST = "loss/train"
"""Read for the step an attempt begins with: twins at the first sample were twins from there on."""


class RankTwins(Detector):
    """Critical when two ranks that must differ are equal in 3 of 5 samples."""

    name: ClassVar[str] = "rank_twins"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "ranks are twins"
    needs: ClassVar[tuple[str, ...]] = (*rank_patterns(*SUBJECTS.values()), FIRST)
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=3)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._attempt = ""
        self._first = [0.0, 0.0]
        self._watched = {subject: _Watched() for subject in SUBJECTS}

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Compare the ranks' hashes of this step, from the very first sample."""
        if frame.attempt != self._attempt:
            self._attempt, self._first = frame.attempt, [float(frame.step), frame.t]
            self._watched = {subject: _Watched() for subject in SUBJECTS}
        verdicts = []
        for subject, name in SUBJECTS.items():
            values = by_rank(frame, name)
            if len(values) >= 2:
                verdicts += self._judge(frame, subject, _twins(values), len(values))
        return verdicts

    def _judge(self, frame: StepFrame, subject: str, twins: list[int], ranks: int) -> list[Verdict]:
        watched = self._watched[subject]
        watched.recent = [*watched.recent, bool(twins)][-self.params.seen :]
        if not twins:
            watched.different_seen, watched.different = True, [float(frame.step + 1), frame.t]
            if not any(watched.recent):
                watched.onset_step = None
                return [said(self, frame, "calm", "info", "different", subject=subject)]
            return []
        watched.ranks = twins
        if watched.onset_step is None:
            begin = watched.different or self._first
            watched.onset_step, watched.onset_at = int(begin[0]), begin[1]
        if sum(watched.recent) < self.params.bad_of:
            return []
        evidence = self._evidence(subject, watched, ranks)
        title = f"ranks {TITLES[subject]}"
        return [
            said(
                self, frame, "bad", "critical", "equal", subject=subject, title=title,
                evidence=evidence,
            )
        ]  # fmt: skip

    def _evidence(self, subject: str, watched: _Watched, ranks: int) -> Evidence:
        words, name = WORDS[subject]
        who, share = ranks_text(watched.ranks), len(watched.ranks) / ranks
        return Evidence(
            rule=f"equal_{subject}",
            version=self.version,
            value=float(len(watched.ranks)),
            threshold=0.0,
            unit="ranks",
            n=len(watched.recent),
            onset_step=watched.onset_step,
            onset_at=watched.onset_at,
            series=tuple(f"{name}@rank{rank}" for rank in watched.ranks[:8]),
            numbers=(("ranks that are equal", float(len(watched.ranks)), "", f"of {ranks}"),),
            summary=f"{who[0].upper()}{who[1:]} {words} in {sum(watched.recent)} of the last "
            f"{len(watched.recent)} samples ({100 * share:.0f} % of the ranks), though they must "
            "differ.",
            causes=_causes(subject, watched.different_seen),
            first_action="stop the run: give every rank its own seed and its own shard, then begin "
            "again from the last checkpoint before this step.",
            clears=f"{self.params.seen + self.hold.calm - 1} samples in a row that differ.",
        )

    def snapshot(self) -> dict[str, Any]:
        return {
            "attempt": self._attempt,
            "first": list(self._first),
            "watched": {subject: asdict(one) for subject, one in self._watched.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._attempt, self._first = state["attempt"], list(state["first"])
        self._watched = {subject: _Watched(**one) for subject, one in state["watched"].items()}


def _twins(values: dict[int, float]) -> list[int]:
    """Ranks whose value another rank has too; zero says nothing (empty, or not initialised)."""
    held = list(values.values())
    return [rank for rank, value in values.items() if value != 0.0 and held.count(value) > 1]


def _causes(subject: str, different_before: bool) -> tuple[Cause, ...]:
    if subject == "shards":
        text = "all tensor-parallel ranks initialised their shards from one seed"
        why = "they differed before" if different_before else "equal since the first sample"
        return (Cause(text, signs_seen=int(not different_before), signs_of=1, why=why),)
    if different_before:
        return (
            Cause(
                "the loaders of these ranks fell into step: a restart or a new epoch lost the "
                "rank's offset",
                signs_seen=1,
                signs_of=1,
                why="they differed before",
            ),
        )
    return (
        Cause(
            "the sampler does not know its rank (one seed, or no DistributedSampler), so each rank "
            "reads the same shard",
            signs_seen=1,
            signs_of=1,
            why="equal since the first sample",
        ),
    )
