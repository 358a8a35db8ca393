"""Template leak: chat-template tokens in training rows, or in answers, that nobody meant."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

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
from monitor.detectors.gate import Gate
from monitor.detectors.robust import noise_sd
from monitor.detectors.saying import finite, said, unsure

DECLARED = "declared_template_share"
"""Entry of the run's config: the share of rows that is meant to carry a template."""


@dataclass(frozen=True, slots=True)
class Params:
    """``batches``: as many are averaged. ``reference_share`` of the planned steps give the usual
    share (at least ``reference_least`` batches, also where no plan is known). ``excess``: rows
    above it; web text and code hold a few template strings by themselves. ``noise_sds``: nor is
    chance a leak, where a batch has few rows. ``at_start``: a share
    this high from the very first batches, declared by nobody, is worth an information. ``gap``:
    train loss falling against the held-out one by so many nats is independent evidence.
    ``answers``: excess share of sampled answers."""

    batches: int = 20
    reference_share: float = 0.01
    reference_least: int = 50
    reference_most: int = 2000
    excess: float = 0.05
    noise_sds: float = 5.0
    calm_excess: float = 0.02
    at_start: float = 0.2
    gap_nats: float = 0.15
    answers: float = 0.05


@dataclass(slots=True)
class _Batch:
    step: int
    t: float
    share: float
    gap: float | None


@dataclass(slots=True)
class _Memory:
    window: list[_Batch] = field(default_factory=list)
    reference_sum: float = 0.0
    reference_n: int = 0
    reference: float | None = None
    onset: _Batch | None = None
    train: float | None = None
    heldout: float | None = None
    gap: float | None = None
    sampling: str = ""
    answers_n: int = 0
    answers_with: int = 0
    answers_reference: float | None = None
    answers_open: bool = False


class TemplateLeak(Detector):
    """Warns when rows with template tokens exceed what is declared, or usual, by 5 points."""

    name: ClassVar[str] = "template_leak"
    title: ClassVar[str] = "chat template in the training data"
    needs: ClassVar[tuple[str, ...]] = (
        "template_share", "template_share/answers", "loss/train", "loss/heldout", "loss/probe",
    )  # fmt: skip
    kinds: ClassVar[tuple[str, ...]] = ("pretrain", "continued", "other")
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=20)
    hears: ClassVar[bool] = True

    @classmethod
    def hold_of(cls, subject: str) -> Hold:
        """Answers are sampled rarely: the first sampling without a template ends it."""
        return Hold(k=1, m=1, calm=1) if subject == "answers" else cls.hold

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self.params = params or Params()
        self._facts = facts
        self._gate = Gate()
        self._memory = _Memory()

    def update(self, frame: StepFrame) -> list[Verdict]:
        """Judge the batch of this step and the answers sampled at it."""
        if frame.values and self._gate.enter(frame):
            # Resumed data is the same data: what is usual stays, the window begins anew.
            self._memory.window, self._memory.onset = [], None
        self._losses(frame)
        verdicts = [v for share in self._samplings(frame) for v in self._answers(frame, share)]
        share = finite(frame, "template_share")
        return verdicts if share is None else verdicts + self._batch(frame, share)

    def _losses(self, frame: StepFrame) -> None:
        memory = self._memory
        train = finite(frame, "loss/train")
        if train is not None:
            known = memory.train
            memory.train = train if known is None else known + 0.05 * (train - known)
        for key in ("loss/probe", "loss/heldout"):
            value = finite(frame, key)
            if value is not None:
                memory.heldout = value
                if memory.train is not None:
                    memory.gap = memory.train - value
                break

    def _batch(self, frame: StepFrame, share: float) -> list[Verdict]:
        memory, params = self._memory, self.params
        batch = _Batch(frame.step, frame.t, share, memory.gap)
        memory.window = [*memory.window, batch][-params.batches :]
        usual = self._usual(frame, share)
        if usual is None:
            if memory.reference_n != 1:
                return []
            needed = f"needs about {self._needed():,} more batches to know the usual share"
            return [unsure(self, frame, needed)]
        if len(memory.window) < params.batches or self._gate.steps_to_go(frame.step):
            return []
        mean = sum(one.share for one in memory.window) / len(memory.window)
        if mean <= usual + params.calm_excess:  # whatever chance does: no need to ask
            memory.onset = None
            return self._at_start(frame, usual)
        if mean > usual + max(params.excess, params.noise_sds * self._mean_sd()):
            memory.onset = memory.onset or self._first(usual)
            return [self._leak(frame, mean, usual, memory.onset)]
        if mean <= usual + 2.0 * self._mean_sd():
            memory.onset = None
            return self._at_start(frame, usual)
        return []

    def _declared(self) -> float | None:
        config = self._facts.facts.get("config") or {}
        value = config.get(DECLARED)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def _needed(self) -> int:
        planned = float(self._facts.facts.get("planned_steps") or 0)
        wanted = int(self.params.reference_share * planned)
        return min(max(wanted, self.params.reference_least), self.params.reference_most)

    def _usual(self, frame: StepFrame, share: float) -> float | None:
        memory, declared = self._memory, self._declared()
        if declared is not None:
            return declared
        if memory.reference is None:
            memory.reference_sum += share
            memory.reference_n += 1
            if memory.reference_n >= self._needed():
                memory.reference = memory.reference_sum / memory.reference_n
        return memory.reference

    def _mean_sd(self) -> float:
        """What chance does to the window's mean: few rows are drawn for each batch."""
        shares = np.asarray([one.share for one in self._memory.window], np.float64)
        return noise_sd(shares) / math.sqrt(len(shares))

    def _first(self, usual: float) -> _Batch:
        """The first batch of the present spell: going back, the first gap of four ends it."""
        window = self._memory.window
        above = [i for i, one in enumerate(window) if one.share > usual + self.params.excess]
        first = above[-1] if above else 0
        for index in reversed(above):
            if first - index > 4:
                break
            first = index
        return window[first]

    def _leak(self, frame: StepFrame, mean: float, usual: float, onset: _Batch) -> Verdict:
        memory = self._memory
        widened = None
        if memory.gap is not None and onset.gap is not None:
            widened = onset.gap - memory.gap
        agrees = widened is not None and widened >= self.params.gap_nats
        severity: Severity = "critical" if agrees else "warning"
        declared = self._declared()
        told = f"declared: {100 * usual:.0f} %" if declared is not None else (
            f"{100 * usual:.0f} % in the run's first batches"
        )  # fmt: skip
        fell = (
            f" The training loss fell {widened:.2f} nats against the held-out one since."
            if agrees and widened is not None
            else ""
        )
        evidence = Evidence(
            rule="template_share",
            version=self.version,
            value=mean,
            threshold=usual + self.params.excess,
            unit="share of rows",
            n=len(memory.window),
            onset_step=onset.step,
            onset_at=onset.t,
            series=("template_share", "loss/train", "loss/probe", "loss/heldout"),
            numbers=(
                ("rows with template tokens", 100 * mean, "%", told),
                *(
                    (("train against held-out loss", -widened, "nats", "since the onset"),)
                    if widened is not None
                    else ()
                ),
            ),
            summary=f"{100 * mean:.0f} % of the rows of the last {len(memory.window)} batches "
            f"carry chat-template tokens ({told}).{fell}",
            causes=_causes(agrees, declared is not None),
            first_action="look at which source these rows come from (the alert page shows the "
            "onset); if they are meant, declare config declared_template_share.",
            clears=f"within {100 * self.params.calm_excess:.0f} points of the usual share for "
            f"{self.hold.calm} batches.",
        )
        return said(self, frame, "bad", severity, "rows_with_template", evidence=evidence)

    def _at_start(self, frame: StepFrame, usual: float) -> list[Verdict]:
        if usual < self.params.at_start or self._declared() is not None:
            return [said(self, frame, "calm", "info", "as_usual")]
        evidence = Evidence(
            rule="undeclared_from_the_start",
            version=self.version,
            value=usual,
            threshold=self.params.at_start,
            unit="share of rows",
            n=self._memory.reference_n,
            onset_step=self._gate.run_first_step,
            series=("template_share",),
            numbers=(("rows with template tokens", 100 * usual, "%", "declared: none"),),
            summary=f"{100 * usual:.0f} % of the rows carried chat-template tokens from the first "
            "batches on, and the run declares none.",
            causes=(Cause("chat data is part of the mix, and nobody declared it", 1, 2, "steady"),),
            first_action="if it is meant, say so: config declared_template_share.",
            clears="a declared share.",
        )
        subject = "start"
        return [said(self, frame, "bad", "info", "undeclared", subject=subject, evidence=evidence)]

    # -- answers ----------------------------------------------------------------------------------

    def _samplings(self, frame: StepFrame) -> list[float]:
        """Shares of answers with template marks: as logged, or of a sampling that is complete."""
        memory, shares = self._memory, []
        logged = finite(frame, "template_share/answers")
        if logged is not None:
            shares.append(logged)
        for event in frame.events:
            if event.kind != "answer":
                continue
            if event.data.get("sampling") != memory.sampling:
                if memory.answers_n:
                    shares.append(memory.answers_with / memory.answers_n)
                memory.sampling = str(event.data.get("sampling"))
                memory.answers_n = memory.answers_with = 0
            memory.answers_n += 1
            memory.answers_with += int(bool(event.data.get("templates")))
            if memory.answers_n == event.data.get("size"):
                shares.append(memory.answers_with / memory.answers_n)
                memory.answers_n = memory.answers_with = 0
        return shares

    def _answers(self, frame: StepFrame, share: float) -> list[Verdict]:
        memory = self._memory
        if memory.answers_reference is None:
            memory.answers_reference = share
            return []
        if share <= memory.answers_reference + self.params.answers:
            calm = said(self, frame, "calm", "info", "no_template", subject="answers")
            was_open, memory.answers_open = memory.answers_open, False
            return [calm] if was_open else []
        memory.answers_open = True
        fed = memory.onset is not None
        evidence = Evidence(
            rule="template_in_answers",
            version=self.version,
            value=share,
            threshold=memory.answers_reference + self.params.answers,
            unit="share of answers",
            onset_step=frame.step,
            onset_at=frame.t,
            series=("template_share/answers", "template_share"),
            numbers=(
                (
                    "answers with template tokens",
                    100 * share,
                    "%",
                    f"first sampling: {100 * memory.answers_reference:.0f} %",
                ),
            ),  # fmt: skip
            summary=f"{100 * share:.0f} % of the sampled answers hold chat-template tokens "
            f"({100 * memory.answers_reference:.0f} % at the first sampling).",
            causes=(
                Cause(
                    "rows with a chat template in the training data",
                    signs_seen=int(fed),
                    signs_of=1,
                    why="seen in the batches too" if fed else "none seen in the batches",
                ),
            ),
            first_action="read the answers; search the data for the template's tokens.",
            clears="a sampling without them.",
        )
        return [
            said(self, frame, "bad", "warning", "answers", subject="answers", evidence=evidence,
                 title="chat template in the answers")
        ]  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {"gate": self._gate.snapshot(), "memory": asdict(self._memory)}

    def restore(self, state: dict[str, Any]) -> None:
        self._gate = Gate(**state["gate"])
        memory = dict(state["memory"])
        memory["window"] = [_Batch(**batch) for batch in memory["window"]]
        memory["onset"] = _Batch(**memory["onset"]) if memory["onset"] else None
        self._memory = _Memory(**memory)


def _causes(agrees: bool, declared: bool) -> tuple[Cause, ...]:
    return (
        Cause(
            "a chat or instruction data set came into the mix, or the collator wraps plain text in "
            "a chat template",
            signs_seen=1 + int(agrees),
            signs_of=2,
            why="the training loss fell and the held-out one did not: the model learns the wrapper"
            if agrees
            else "the losses do not show it (yet)",
        ),
        *(
            ()
            if declared
            else (Cause("a planned change of the mix that was not declared", 0, 1, ""),)
        ),
    )
