"""Answers that got shorter or surer, and not better: the same prompts against a fixed reference.

Learning *is* getting surer, so that alone says nothing. What says something is surer or shorter
while the answers known to be good became no likelier and no more checks are passed.

The reference is one sampling and stays it, however slowly things move; it changes only where a
later one is proven better on the reference answers. Prompt sets and decodings that take turns have
a reference each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, ClassVar

from monitor.detectors.answer_lines import Line, Numbers, Sampling, line_of, pairs_of
from monitor.detectors.base import (
    WARMUP_STEPS,
    Cause,
    Detector,
    Evidence,
    Hold,
    RunFacts,
    StepEvent,
    StepFrame,
    Verdict,
)
from monitor.domain.paired import effect, holm, rank_sum_p


@dataclass(frozen=True, slots=True)
class Params:
    """``pairs``: fewer comparable prompts tell nothing. ``alpha``: after Holm's correction.
    ``effect``: least mean difference, in standard deviations of the differences; not asked for
    where the reference answers are proven worse: that alone says that it is no whim. ``shorter``:
    least change of the mean log length (-15 %), ``much_shorter``: speaks alone where nothing tells
    quality (-40 %), ``surer``: of the mean probability, ``ends``: of the mean
    log of the probability of ending (x1.5), ``repeats``: of the share of repeated stretches.
    ``better_nats``: a fall of the reference answers' mean NLL that counts as better; ``better_p``:
    how sure one has to be of it before the reference moves on.
    """

    pairs: int = 8
    alpha: float = 0.05
    effect: float = 0.5
    shorter: float = 0.16
    much_shorter: float = 0.5
    surer: float = 0.04
    ends: float = 0.4
    repeats: float = 0.1
    better_nats: float = 0.02
    better_p: float = 0.05


SIGNS = {
    "shorter": "shorter",
    "ends": "sooner at an end",
    "surer": "surer",
    "first": "surer of the first token",
    "repeats": "repeating themselves",
}
"""What is tested, and how it is said. The first three can open an alert, all can support one."""

OPENERS = ("shorter", "ends", "surer")
END_FLOOR = 1e-6
OPEN_AT_ONCE = 3
KEPT_LINES = 4
"""Prompt sets or decodings in turn; what has not come up for longest gives way."""
LEAST_PROOF = 5
"""Fewer reference answers prove nothing: by chance all of 4 move one way in 1 of 16."""

KEPT = frozenset(
    {"settings", "length", "confidence", "first_token", "repeats", "stop_reason", "reference_nll",
     "ends", "checks"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Finding:
    """A sampling against the reference: p after Holm and differences by sign, and quality."""

    pairs: int
    p: dict[str, float]
    gaps: dict[str, list[float]]
    signs: tuple[str, ...]
    nll: list[float]
    checks: list[float]

    @property
    def nll_change(self) -> float | None:
        return fmean(self.nll) if self.nll else None

    @property
    def checks_change(self) -> float | None:
        return fmean(self.checks) if self.checks else None


class AnswersDrift(Detector):
    """Judges each sampling when its last answer is there, late ones too."""

    name: ClassVar[str] = "answers_drift"
    version: ClassVar[int] = 3
    title: ClassVar[str] = "answers got shorter or surer, not better"
    needs: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[str, ...]] = ("pretrain", "continued", "sft", "other")
    hold: ClassVar[Hold] = Hold(k=2, m=3, calm=2)
    hears: ClassVar[bool] = True

    def __init__(self, facts: RunFacts, params: Params | None = None) -> None:
        self._params = params or Params()
        self._open: dict[str, Sampling] = {}
        self._lines: list[Line] = []
        self._judged: list[str] = []

    def update(self, frame: StepFrame) -> list[Verdict]:
        verdicts: list[Verdict] = []
        arrived = any(event.kind == "arrival" for event in frame.events)
        for event in frame.events:
            if event.kind == "answer":
                verdicts += self._take(event, frame)
            elif arrived and event.kind == "phase_end" and event.name == "sampling":
                verdicts += self._close(list(self._open), frame)
        return verdicts

    # -- collecting --------------------------------------------------------------------------------

    def _take(self, event: StepEvent, frame: StepFrame) -> list[Verdict]:
        """One answer; a sampling whose last answers never came gives way to newer ones."""
        numbers = event.data
        sampling = str(numbers["sampling"])
        if sampling in self._judged:
            return []  # a repeat
        if sampling not in self._open:
            fresh = Sampling(sampling, int(numbers["step"]), int(numbers["size"]), event.at)
            self._open[sampling] = fresh
        into = self._open[sampling]
        into.answers[event.name] = {k: v for k, v in numbers.items() if k in KEPT}
        if 0 < into.size <= len(into.answers):
            return self._close([sampling], frame)
        return self._close(list(self._open)[:-OPEN_AT_ONCE], frame)

    def _close(self, samplings: list[str], frame: StepFrame) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for sampling in samplings:
            self._judged = [*self._judged[-99:], sampling]
            verdicts += self._closed(self._open.pop(sampling), frame)
        return verdicts

    def _closed(self, done: Sampling, frame: StepFrame) -> list[Verdict]:
        if done.step < WARMUP_STEPS:
            return []
        line = max(self._lines, key=lambda one: len(pairs_of(one.reference, done)), default=None)
        pairs = 0 if line is None else len(pairs_of(line.reference, done))
        if line is None or (pairs < self._params.pairs <= len(done.answers)):
            return self._begin(done, pairs, frame)
        if done.step <= line.reference.step:
            return []  # older weights than those compared with
        self._lines = [*(one for one in self._lines if one is not line), line]
        return [self._judge(done, line, frame)]

    def _begin(self, done: Sampling, pairs: int, frame: StepFrame) -> list[Verdict]:
        """A reference of its own for what none can be compared with."""
        is_first = not self._lines
        self._lines = [*self._lines, Line(done)][-KEPT_LINES:]
        if is_first:
            return []
        changed = "the prompts, the tokenizer or the decoding are others: compared from here on"
        few = f"{pairs} comparable prompts; it takes {self._params.pairs}: compared from here on"
        return [self._unsure(done, frame, few if pairs else changed)]

    # -- judging -----------------------------------------------------------------------------------

    def _judge(self, now: Sampling, line: Line, frame: StepFrame) -> Verdict:
        found = self._compare(now, line.reference)
        if found.pairs < self._params.pairs:
            missing = f"{found.pairs} comparable prompts; it takes {self._params.pairs}"
            return self._unsure(now, frame, missing)
        opening = [sign for sign in found.signs if sign in OPENERS]
        if self._is_proven(found) or not opening or self._is_better(found):
            if self._is_proven(found):
                line.reference = now
            line.since, line.good = None, (now.step, now.at)
            return self._calm(now, frame)
        if not self._can_tell(found, opening):
            missing = "reference answers or checks in the prompt set, to tell worse from better"
            return self._unsure(now, frame, missing)
        if line.since is None:
            # It may have begun with the step after the last sampling that was as before.
            step, at = line.good or (line.reference.step, line.reference.at)
            line.since = (step + 1, at)
        return self._bad(now, line, found, frame)

    def _compare(self, now: Sampling, then: Sampling) -> _Finding:
        pairs = pairs_of(then, now)
        gaps = {
            "shorter": _gaps(pairs, lambda a: -math.log(a["length"] + 1.0)),
            "ends": _gaps(pairs, _log_ends),
            "surer": _gaps(pairs, lambda a: a["confidence"]),
            "first": _gaps(pairs, lambda a: a["first_token"]),
            "repeats": _gaps(pairs, lambda a: a["repeats"]),
        }
        p = holm({sign: rank_sum_p(differences) for sign, differences in gaps.items()})
        nll = _gaps(_asked_once(pairs), lambda a: a["reference_nll"])
        needed = 0.0 if self._is_proven_worse(nll) else self._params.effect
        signs = tuple(s for s in SIGNS if self._shows(s, gaps[s], p[s], needed))
        return _Finding(len(pairs), p, gaps, signs, nll, _gaps(pairs, _passed))

    def _shows(self, sign: str, gaps: list[float], p: float, needed: float) -> bool:
        least = {
            "shorter": self._params.shorter, "ends": self._params.ends,
            "repeats": self._params.repeats,
        }.get(sign, self._params.surer)  # fmt: skip
        return (
            len(gaps) >= self._params.pairs
            and p < self._params.alpha
            and fmean(gaps) >= least
            and effect(gaps) >= needed
        )

    def _can_tell(self, found: _Finding, opening: list[str]) -> bool:
        """Without a measure of quality two signs have to agree, or the answers be much shorter."""
        if found.nll or found.checks or len(opening) > 1:
            return True
        return "shorter" in opening and fmean(found.gaps["shorter"]) >= self._params.much_shorter

    def _is_better(self, found: _Finding) -> bool:
        """Likelier reference answers, or more checks passed, and neither of them worse."""
        nll, checks = found.nll_change, found.checks_change
        likelier = nll is not None and nll <= -self._params.better_nats
        more = checks is not None and checks > 0
        worse = (nll is not None and nll >= self._params.better_nats) or (
            checks is not None and checks < 0
        )
        return (likelier or more) and not worse

    def _is_proven(self, found: _Finding) -> bool:
        """Better beyond chance: from here on this is what is compared with."""
        if not self._is_better(found):
            return False
        downs = rank_sum_p([-gap for gap in found.nll])
        return len(found.nll) >= LEAST_PROOF and downs < self._params.better_p

    def _is_proven_worse(self, nll: list[float]) -> bool:
        """The reference answers became less likely, beyond chance."""
        enough = len(nll) >= LEAST_PROOF and fmean(nll) >= self._params.better_nats
        return enough and rank_sum_p(nll) < self._params.better_p

    # -- words -------------------------------------------------------------------------------------

    def _bad(self, now: Sampling, line: Line, found: _Finding, frame: StepFrame) -> Verdict:
        then, since = line.reference, line.since or (now.step, now.at)
        said = " and ".join(SIGNS[sign] for sign in found.signs if sign in OPENERS)
        evidence = Evidence(
            rule="paired rank sum against a fixed sampling, Holm",
            version=self.version,
            value=min(found.p[sign] for sign in found.signs),
            threshold=self._params.alpha,
            n=found.pairs,
            onset_step=since[0],
            onset_at=since[1],
            numbers=_rows(now, then, found),
            summary=f"answers of step {now.step:,} are {said} than those of step {then.step:,}"
            f" ({found.pairs} prompts){_quality_words(found)}",
            causes=_causes(found),
            first_action="read a few answers side by side; then see what the data became since.",
            clears="two samplings in a row that are not shorter or surer, or that are better",
        )
        return Verdict(
            self.name, "", "bad", "warning", _reason(found), now.step, frame.t, frame.attempt,
            self.title, evidence,
        )  # fmt: skip

    def _calm(self, now: Sampling, frame: StepFrame) -> Verdict:
        return Verdict(
            self.name, "", "calm", "info", "as_before", now.step, frame.t, frame.attempt, self.title
        )

    def _unsure(self, now: Sampling, frame: StepFrame, missing: str) -> Verdict:
        evidence = Evidence("cannot_tell", self.version, summary=missing)
        return Verdict(
            self.name, "", "cannot_tell", "info", "cannot_tell", now.step, frame.t, frame.attempt,
            self.title, evidence,
        )  # fmt: skip

    # -- memory ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "open": [asdict(sampling) for sampling in self._open.values()],
            "lines": [asdict(line) for line in self._lines],
            "judged": list(self._judged),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._open = {saved["id"]: Sampling(**saved) for saved in state["open"]}
        self._lines = [line_of(saved) for saved in state["lines"]]
        self._judged = list(state["judged"])


def _gaps(
    pairs: list[tuple[Numbers, Numbers]], read: Callable[[Numbers], float | None]
) -> list[float]:
    """Later minus earlier, where both have the number."""
    both = ((read(then), read(now)) for then, now in pairs)
    return [b - a for a, b in both if a is not None and b is not None]


def _asked_once(pairs: list[tuple[Numbers, Numbers]]) -> list[tuple[Numbers, Numbers]]:
    """Each reference answer once: under several decodings it is the same measurement again."""
    seen = {(then["reference_nll"], now["reference_nll"]): (then, now) for then, now in pairs}
    return list(seen.values())


def _log_ends(answer: Numbers) -> float | None:
    later = [float(p) for place, p in answer["ends"].items() if place != "0"]
    return math.log(max(fmean(later), END_FLOOR)) if later else None


def _passed(answer: Numbers) -> float | None:
    checks = answer["checks"]
    return sum(checks.values()) / len(checks) if checks else None


def _middle(sampling: Sampling, name: str) -> float | None:
    values = [a[name] for a in sampling.answers.values() if a[name] is not None]
    return float(median(values)) if values else None


def _rows(
    now: Sampling, then: Sampling, found: _Finding
) -> tuple[tuple[str, float, str, str], ...]:
    rows: list[tuple[str, float, str, str]] = []
    for label, name, unit in (("length", "length", "tokens"), ("confidence", "confidence", "")):
        before, after = _middle(then, name), _middle(now, name)
        if before is not None and after is not None:
            rows.append((label, after, unit, f"was {before:.3g} at step {then.step:,}"))
    change = found.nll_change
    if change is not None:
        rows.append(("NLL of the reference answers", change, "nats", "change; lower is better"))
    return tuple(rows)


def _quality_words(found: _Finding) -> str:
    change = found.nll_change
    if change is None:
        return "; the set has no reference answers to say whether they are better"
    word = "further off" if change > 0 else "hardly nearer"
    return f"; the reference answers are {word} ({change:+.2f} nats)"


def _reason(found: _Finding) -> str:
    short = {"shorter", "ends"} & set(found.signs)
    return "shorter_and_surer" if short and "surer" in found.signs else (
        "shorter" if short else "surer"
    )  # fmt: skip


def _causes(found: _Finding) -> tuple[Cause, ...]:
    """Two stories, told apart by what the reference answers say."""
    change = found.nll_change or 0.0
    signs = set(found.signs)
    seen = ("surer" in signs) + (change > 0.05)
    learnt = Cause("the same data too often: the model is surer than it is right", seen, 2)
    short = ("shorter" in signs) + ("ends" in signs)
    ending = Cause("the data became shorter or ends earlier than before", short, 2)
    return tuple(sorted((learnt, ending), key=lambda cause: -cause.signs_seen))
