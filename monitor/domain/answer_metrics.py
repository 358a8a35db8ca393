"""Numbers of answers: of one, of a set, and of one set against another. Pure.

Confidence is the mean probability of the chosen tokens under the untempered model. What the hooks
did not send is None, never 0.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

from monitor.domain.answer import SETTINGS, repetition
from trainer_hooks.wire import Answer, Number, from_cell

TEMPLATE_TOKENS = (
    "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "### Instruction", "### Response",
    "<|user|>", "<|assistant|>", "<|system|>", "<start_of_turn>", "<|eot_id|>",
    "<|start_header_id|>",
)  # fmt: skip
"""What chat templates leave behind when they leak into text."""


_PRIME = 4_294_967_291
_HASHES = tuple((2_654_435_761 * (2 * i + 1) % _PRIME, 40_503 * i + 7) for i in range(16))


@dataclass(frozen=True, slots=True)
class AnswerMetrics:
    """One answer's numbers.

    ``length`` in tokens (words where none were sent); ``words``; ``confidence`` and ``first_token``
    0..1; ``logprob`` the mean log-probability of its tokens, ``entropy`` their mean entropy and
    ``reference_nll`` that of the reference answer (nats); ``ends`` the probability of ending by
    position; ``repeats`` the share of four-word stretches seen before in it; ``templates`` how many
    template tokens are in it; ``checks`` by name.
    """

    length: int
    words: int
    confidence: float | None
    first_token: float | None
    logprob: float | None
    entropy: float | None
    repeats: float
    stop_reason: str
    templates: int
    reference_nll: float | None
    ends: dict[str, float] = field(default_factory=dict)
    checks: dict[str, bool] = field(default_factory=dict)

    @property
    def ends_mean(self) -> float | None:
        """Mean probability of ending over the fixed positions behind the first."""
        later = [p for place, p in self.ends.items() if place != "0"]
        return fmean(later) if later else None


def measure(answer: Answer) -> AnswerMetrics:
    """The numbers of one answer."""
    logprobs = _finite(answer.token_logprobs)
    entropies = _finite(answer.token_entropies)
    chances = [math.exp(min(p, 0.0)) for p in logprobs]
    spoken = answer.text.split()
    nll = None if answer.reference_nll is None else from_cell(answer.reference_nll)
    return AnswerMetrics(
        length=len(answer.token_ids) or len(answer.token_logprobs) or len(spoken),
        words=len(spoken),
        confidence=_mean(chances),
        first_token=chances[0] if chances and logprobs == answer.token_logprobs else None,
        logprob=_mean(logprobs),
        entropy=_mean(entropies),
        repeats=repetition(spoken),
        stop_reason=answer.stop_reason,
        templates=sum(answer.text.count(mark) for mark in TEMPLATE_TOKENS),
        reference_nll=nll if nll is not None and math.isfinite(nll) else None,
        ends={place: p for place, p in answer.end_token_probs.items() if math.isfinite(p)},
        checks=dict(answer.checks),
    )


def settings_of(answer: Answer) -> str:
    """All that has to be equal for two answers to be compared, in one word."""
    return repr([getattr(answer, name) for _, name in SETTINGS])


@dataclass(frozen=True, slots=True)
class SetMetrics:
    """A whole sampling in numbers: medians of lengths, means of the rest, shares 0..1.

    ``python`` and ``brackets`` are shares of the answers that were asked; ``stops`` counts stop
    reasons.
    """

    answers: int
    length: float | None
    words: float | None
    confidence: float | None
    first_token: float | None
    entropy: float | None
    ends: float | None
    repeats: float | None
    reference_nll: float | None
    templates: int
    checks: dict[str, float]
    stops: dict[str, int]


def of_set(metrics: Sequence[AnswerMetrics]) -> SetMetrics:
    """Numbers of a sampling from those of its answers."""
    stops: dict[str, int] = {}
    for one in metrics:
        stops[one.stop_reason or "unknown"] = stops.get(one.stop_reason or "unknown", 0) + 1
    return SetMetrics(
        answers=len(metrics),
        length=median(m.length for m in metrics) if metrics else None,
        words=median(m.words for m in metrics) if metrics else None,
        confidence=_mean_of(m.confidence for m in metrics),
        first_token=_mean_of(m.first_token for m in metrics),
        entropy=_mean_of(m.entropy for m in metrics),
        ends=_mean_of(m.ends_mean for m in metrics),
        repeats=_mean_of(m.repeats for m in metrics),
        reference_nll=_mean_of(m.reference_nll for m in metrics),
        templates=sum(m.templates for m in metrics),
        checks=_passed(metrics),
        stops=stops,
    )


def overlap(left: str, right: str) -> float:
    """How much of two texts is the same, 0..1: shared words (with their number) over all (Dice)."""
    a, b = left.split(), right.split()
    if not a and not b:
        return 1.0
    counts: dict[str, int] = {}
    for word in a:
        counts[word] = counts.get(word, 0) + 1
    shared = 0
    for word in b:
        if counts.get(word, 0) > 0:
            counts[word] -= 1
            shared += 1
    return 2 * shared / (len(a) + len(b))


def sketch(text: str) -> list[int]:
    """A text's words in a few numbers (minimum hashes): enough to say how much two share."""
    codes = {zlib.crc32(word.encode("utf-8", "replace")) for word in text.split()}
    if not codes:
        return []
    return [min((a * code + b) % _PRIME for code in codes) for a, b in _HASHES]


def likeness(left: Sequence[int], right: Sequence[int]) -> float:
    """About the share of words that two texts have in common, of all words of both (0..1).

    From sketches: for one pair to about 0.1, for the mean of many to a few hundredths.
    """
    if not left or not right:
        return 1.0 if not left and not right else 0.0
    return sum(a == b for a, b in zip(left, right, strict=True)) / len(left)


def summary(answer: Answer) -> dict[str, Any]:
    """What a detector needs of an answer, as JSON values."""
    return {
        "sampling": answer.sampling_id,
        "size": answer.sampling_size,
        "step": answer.weights_step,
        "settings": settings_of(answer),
        "set": answer.prompt_set_hash,
        **asdict(measure(answer)),
    }


def _passed(metrics: Sequence[AnswerMetrics]) -> dict[str, float]:
    asked: dict[str, list[bool]] = {}
    for one in metrics:
        for name, passed in one.checks.items():
            asked.setdefault(name, []).append(passed)
    return {name: sum(found) / len(found) for name, found in sorted(asked.items())}


def _finite(cells: Sequence[Number]) -> list[float]:
    return [value for value in map(from_cell, cells) if math.isfinite(value)]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _mean_of(values: Iterable[float | None]) -> float | None:
    return _mean([value for value in values if value is not None])
