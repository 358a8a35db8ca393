"""One source of the probe gets worse while the mean improves: what the mean hides."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from monitor.detectors.base import Cause, Detector, Evidence, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.gate import Gate
from monitor.detectors.robust import bend_sd
from monitor.detectors.saying import finite, said, unsure

MEANS = ("loss/probe", "loss/heldout")


@dataclass(frozen=True, slots=True)
class Params:
    """``evals``: a held-out curve is judged from its eighth value on. ``rise_nats``,
    ``rise_share``, ``rise_sd``: above the source's own best by all three. ``evals_in_a_row``:
    three. ``noise_evals``: the latest up to its best tell its noise. ``mean_slack``: the mean may
    stand this share above its best and still improve. ``share_lost``: a source of which a quarter
    less is served is short of data."""

    evals: int = 8
    rise_nats: float = 0.02
    rise_share: float = 0.01
    rise_sd: float = 4.0
    evals_in_a_row: int = 3
    mean_slack: float = 0.002
    share_lost: float = 0.25
    kept_evals: int = 32
    noise_evals: int = 8


@dataclass(slots=True)
class _Source:
    """``best``: [step, loss, mean at that step, share served then (-1: not told), time]. ``since``:
    evaluations since then, whose rise is no noise."""

    recent: list[float] = field(default_factory=list)
    seen: int = 0
    since: int = 0
    best: list[float] = field(default_factory=list)
    above: int = 0
    onset_step: int | None = None
    onset_at: float | None = None
    last_step: int = 0


class SourceRegression(Detector):
    """Warns about a source three evaluations in a row above its best while the mean improves."""

    name: ClassVar[str] = "source_regression"
    version: ClassVar[int] = 2
    title: ClassVar[str] = "one source gets worse"
    needs: ClassVar[tuple[str, ...]] = (
        *MEANS, "loss/probe@*", "loss/heldout@*", "source_share@*",
    )  # fmt: skip
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=2)

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._gate = Gate()
        self._sources: dict[str, _Source] = {}
        self._shares: dict[str, float] = {}

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge each source of the probe against its own past, and the mean against its."""
        if self._gate.enter(frame):
            self._sources = {}
        for key in frame.values:
            share = finite(frame, key) if key.startswith("source_share@") else None
            if share is not None:
                name = key.partition("@")[2]
                known = self._shares.get(name, share)
                self._shares[name] = known + 0.05 * (share - known)
        verdicts: list[Verdict] = []
        for head in MEANS:
            verdicts += self._judge_probe(frame, head)
        return verdicts

    def _judge_probe(self, frame: StepFrame, head: str) -> list[Verdict]:
        losses = {
            key: value
            for key in frame.values
            if key.startswith(f"{head}@") and (value := finite(frame, key)) is not None
        }
        if len(losses) < 2:
            return []
        mean = finite(frame, head)
        mean = sum(losses.values()) / len(losses) if mean is None else mean
        return [
            verdict
            for key, loss in losses.items()
            if (verdict := self._take(frame, key, loss, mean)) is not None
        ]

    def _take(self, frame: StepFrame, key: str, loss: float, mean: float) -> Verdict | None:
        source, params = self._sources.setdefault(key, _Source()), self.params
        subject = key.partition("@")[2]
        interval = frame.step - source.last_step
        source.last_step = frame.step
        source.recent.append(loss)
        del source.recent[: -params.kept_evals]
        source.seen += 1
        if not source.best or loss < source.best[1]:
            share = self._shares.get(subject, -1.0)
            source.best, source.since = [float(frame.step), loss, mean, share, frame.t], -1
        source.since += 1
        above = loss > source.best[1] + self._limit(source)
        if above and source.above == 0:
            # It was still as good as ever then: the rise began after it.
            source.onset_step, source.onset_at = int(source.best[0]) + 1, source.best[4]
        source.above = source.above + 1 if above else 0
        if self._gate.steps_to_go(frame.step) or source.seen < params.evals:
            missing = max((params.evals - source.seen) * max(interval, 1), 1)
            return unsure(self, frame, f"needs about {missing:,} more steps", subject)
        if not above:
            return said(self, frame, "calm", "info", "as_good_as_ever", subject=subject)
        improves = mean <= source.best[2] * (1.0 + params.mean_slack)
        if source.above < params.evals_in_a_row or not improves:
            return None  # where the mean gets worse as well, that is what other rules tell
        return self._bad(frame, key, source, loss, mean)

    def _limit(self, source: _Source) -> float:
        params = self.params
        before = source.recent[: len(source.recent) - source.since]
        known = before if len(before) >= params.noise_evals else source.recent
        noise = params.rise_sd * bend_sd(np.asarray(known[-params.noise_evals :]))
        return max(params.rise_nats, params.rise_share * source.best[1], noise)

    def _bad(
        self, frame: StepFrame, key: str, source: _Source, loss: float, mean: float
    ) -> Verdict:
        subject = key.partition("@")[2]
        step, best, mean_then = source.best[:3]
        evidence = Evidence(
            rule="source_above_best",
            version=self.version,
            value=loss,
            threshold=best + self._limit(source),
            unit="nats",
            n=source.seen,
            onset_step=source.onset_step,
            onset_at=source.onset_at,
            series=(key, key.partition("@")[0], f"source_share@{subject}"),
            numbers=(
                (f"loss on {subject}", loss, "nats", f"best {best:.3f} at step {int(step):,}"),
                ("mean over the sources", mean, "nats", f"was {mean_then:.3f} then"),
            ),
            summary=f"On {subject} the loss rose from {best:.3f} to {loss:.3f} since step "
            f"{int(step):,}, while the mean went from {mean_then:.3f} to {mean:.3f}.",
            causes=(self._cause(subject, source),),
            first_action="look at how much of this source is still served, and what it is made of.",
            clears="two evaluations near the source's best.",
        )
        return said(
            self, frame, "bad", "warning", "source_above_best", subject=subject,
            title=f"{self.title} ({subject})", evidence=evidence,
        )  # fmt: skip

    def _cause(self, subject: str, source: _Source) -> Cause:
        share, then = self._shares.get(subject), source.best[3]
        if share is not None and then > 0.0 and share < (1.0 - self.params.share_lost) * then:
            text = f"less of {subject} is served: {100 * share:.1f} % of the rows"
            return Cause(text, 2, 2, f"{100 * then:.1f} % when it was best")
        if share is not None and then > 0.0:
            text = f"what is served as {subject} is no longer like the probe, or other sources win"
            return Cause(text, 1, 2, "its share of the rows is as before")
        return Cause("unexplained: shares of the sources are not told", 0, 1)

    def snapshot(self) -> dict[str, Any]:
        return {
            "gate": self._gate.snapshot(),
            "sources": {key: asdict(source) for key, source in self._sources.items()},
            "shares": dict(self._shares),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        self._sources = {key: _Source(**source) for key, source in state["sources"].items()}
        self._shares = dict(state["shares"])
