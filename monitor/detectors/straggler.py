"""Straggler: one rank that all others wait for. The culprit works longest, its victims wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.ranks import by_rank, rank_patterns
from monitor.detectors.robust import median
from monitor.detectors.saying import said, unsure
from monitor.domain.words import duration_text


@dataclass(frozen=True, slots=True)
class Params:
    """``slow_ratio``: the slowest rank's own work over the median of the others; sound jobs lie
    below 1.1. ``calm_ratio`` ends it. ``samples``: how many are looked at, ``same_of`` of which
    must name the same rank: work that goes round (a log writer, one slow batch) is no straggler.
    ``warmup_samples``: the first ones hold compilation and cache misses."""

    slow_ratio: float = 1.2
    calm_ratio: float = 1.1
    samples: int = 20
    same_of: int = 14
    warmup_samples: int = 5


@dataclass(slots=True)
class _Sample:
    step: int
    t: float
    rank: int
    ratio: float
    excess_s: float
    data_excess_s: float
    others_wait_s: float
    ranks: int


@dataclass(slots=True)
class _Memory:
    attempt: str = ""
    seen: int = 0
    window: list[_Sample] = field(default_factory=list)
    subject: str = ""
    onset_step: int | None = None
    onset_at: float | None = None
    lost_s: float = 0.0
    last_step: int | None = None


class Straggler(Detector):
    """Warns when the same rank is slowest, by a fifth, in 14 of 20 samples."""

    name: ClassVar[str] = "straggler"
    title: ClassVar[str] = "one rank holds up the others"
    needs: ClassVar[tuple[str, ...]] = rank_patterns(
        "step_s", "data_wait_s", "compute_s", "collective_wait_s"
    )
    kinds: ClassVar[tuple[str, ...]] = (
        "pretrain", "continued", "sft", "preference", "rl", "other",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=5)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Compare the ranks' own work in this step."""
        if frame.attempt != self._memory.attempt:
            self._memory = _Memory(frame.attempt)
        memory = self._memory
        sample = self._sample(frame)
        if sample is None:
            return []
        memory.seen += 1
        if memory.seen <= self.params.warmup_samples:
            return []
        memory.window = [*memory.window, sample][-self.params.samples :]
        if len(memory.window) < self.params.samples:
            return self._not_yet(frame)
        return self._judge(frame)

    def _not_yet(self, frame: StepFrame) -> list[Verdict]:
        if len(self._memory.window) != 1:
            return []
        needed = f"needs about {self.params.samples} more samples of the ranks' step times"
        return [unsure(self, frame, needed)]

    def _sample(self, frame: StepFrame) -> _Sample | None:
        """The slowest rank of a step. Own work is the compute and data time, or the step less its
        wait in the collectives; failing both the step with its own wait for data in it."""
        steps, data = by_rank(frame, "step_s"), by_rank(frame, "data_wait_s")
        compute, waits = by_rank(frame, "compute_s"), by_rank(frame, "collective_wait_s")
        if compute:
            work = {rank: value + data.get(rank, 0.0) for rank, value in compute.items()}
        elif waits:
            work = {rank: steps[rank] - wait for rank, wait in waits.items() if rank in steps}
        else:
            work = _by_data(steps, data) or steps or data
        if len(work) < 2:
            return None
        worst = max(work, key=lambda rank: work[rank])
        others = median([value for rank, value in work.items() if rank != worst])
        if others <= 0.0:
            return None
        own, rest = data.get(worst, 0.0), [v for rank, v in data.items() if rank != worst]
        waiting = median([value for rank, value in waits.items() if rank != worst])
        return _Sample(
            frame.step, frame.t, worst, work[worst] / others, work[worst] - others,
            own - median(rest), waiting, len(work),
        )  # fmt: skip

    def _judge(self, frame: StepFrame) -> list[Verdict]:
        memory, params = self._memory, self.params
        (rank, _), *_ = Counter(sample.rank for sample in memory.window).most_common(1)
        slow = [s for s in memory.window if s.rank == rank and s.ratio > params.slow_ratio]
        subject = f"rank{rank}"
        if len(slow) >= params.same_of:
            return self._slow(frame, subject, slow)
        ratios = [sample.ratio for sample in memory.window[-params.same_of :]]
        if memory.subject and median(ratios) < params.calm_ratio:
            return [said(self, frame, "calm", "info", "even_again", subject=memory.subject)]
        return [] if memory.subject else [said(self, frame, "calm", "info", "even")]

    def _slow(self, frame: StepFrame, subject: str, slow: list[_Sample]) -> list[Verdict]:
        memory, verdicts = self._memory, []
        if memory.subject and memory.subject != subject:
            verdicts = [
                said(self, frame, "calm", "info", "another_rank", subject=memory.subject)
                for _ in range(self.hold.calm)
            ]
        if memory.subject != subject:
            memory.subject, memory.lost_s = subject, 0.0
            memory.onset_step, memory.onset_at = slow[0].step, slow[0].t
            memory.last_step = slow[0].step
        excess = median([sample.excess_s for sample in slow])
        memory.lost_s += excess * (frame.step - (memory.last_step or frame.step))
        memory.last_step = frame.step
        evidence = self._evidence(slow, excess)
        return [
            *verdicts,
            said(
                self,
                frame,
                "bad",
                "warning",
                "slow_rank",
                subject=subject,
                evidence=evidence,
                title=f"rank {slow[-1].rank} holds up the others",
            ),  # fmt: skip
        ]

    def _evidence(self, slow: list[_Sample], excess_s: float) -> Evidence:
        memory, rank = self._memory, slow[-1].rank
        ratio = median([sample.ratio for sample in slow])
        from_data = median([sample.data_excess_s for sample in slow])
        waiting = median([sample.others_wait_s for sample in slow])
        waits = f" The others wait {waiting:.2f} s a step in the collectives." if waiting else ""
        return Evidence(
            rule="own_work",
            version=self.version,
            value=ratio,
            threshold=self.params.slow_ratio,
            unit="of the other ranks' median",
            n=len(slow),
            onset_step=memory.onset_step,
            onset_at=memory.onset_at,
            series=tuple(f"{name}@rank{rank}" for name in ("step_s", "data_wait_s", "compute_s")),
            numbers=(
                ("own work of the slowest rank", ratio, "x", f"of {slow[-1].ranks} ranks"),
                ("time lost", memory.lost_s, "s", f"{excess_s:.2f} s a step, all ranks wait"),
            ),
            summary=f"Rank {rank} works {ratio:.2f}x as long as the other ranks in {len(slow)} of "
            f"{self.params.samples} samples; every step is {excess_s:.2f} s longer for all, "
            f"{duration_text(memory.lost_s)} so far.{waits}",
            causes=_causes(excess_s, from_data),
            first_action=f"look at rank {rank}'s host: loader, GPU clocks, other processes, network"
            " errors; move the job off it if it stays.",
            clears=f"its work below {self.params.calm_ratio:g}x that of the others.",
        )

    def snapshot(self) -> dict[str, Any]:
        return asdict(self._memory)

    def restore(self, state: dict[str, Any]) -> None:
        window = [_Sample(**sample) for sample in state["window"]]
        self._memory = _Memory(**{**state, "window": window})


def _by_data(steps: dict[int, float], data: dict[int, float]) -> dict[int, float]:
    """Own work where all steps take the same, since all wait for each other: what is left without
    the longest wait for data is everybody's, and each has its own wait besides."""
    if len(steps) < 2 or steps.keys() != data.keys():
        return {}
    usual = median(list(steps.values()))
    if max(steps.values()) > 1.05 * usual:
        return {}
    common = max(usual - max(data.values()), 0.05 * usual)
    return {rank: common + wait for rank, wait in data.items()}


def _causes(excess_s: float, from_data_s: float) -> tuple[Cause, ...]:
    data_share = from_data_s / excess_s if excess_s > 0 else 0.0
    data = Cause(
        "its loader is slow: more or longer samples, a cold cache, a busy disk",
        signs_seen=int(data_share > 0.5),
        signs_of=1,
        why=f"{100 * max(0.0, min(data_share, 1.0)):.0f} % of the excess is waiting for data",
    )
    device = Cause(
        "its GPU or host is slow: clocks held down, another process, a bad link",
        signs_seen=int(data_share <= 0.5),
        signs_of=2,
        why="the excess is not in the data; the GPU signals of that rank would tell",
    )
    return (data, device) if data_share > 0.5 else (device, data)
