"""Sampled answers side by side: which belong together, what differs, and a verdict in few words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from monitor.domain.diff import Piece, word_diff
from trainer_hooks.wire import Answer, from_cell

SETTINGS = (
    ("prompt", "prompt_hash"),
    ("system prompt", "system"),
    ("tokenizer", "tokenizer_hash"),
    ("temperature", "temperature"),
    ("top-p", "top_p"),
    ("seed", "seed"),
    ("length limit", "max_tokens"),
    ("number format", "dtype"),
    ("model", "model_label"),
    ("batch size", "batch_size"),
)
"""What must be equal for two answers to be compared, as people call it and as the wire does."""

SAME_LENGTH = 0.10
SAME_CONFIDENCE = 0.02
SAME_REPETITION = 0.10
SAME_NLL = 0.02
WORSE_NLL = 0.15
MUCH_SHORTER = 0.6
MUCH_SURER = 0.2
REPEAT_N = 4
"""Changes below these are not worth a word; repetition counts stretches of four words."""


Fate = Literal["worse", "better", "changed", "same", "apart", "missing"]
"""What became of an answer: ``apart`` may not be compared, ``missing`` has one side only."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Numbers of one answer: ``length`` in tokens (words where the hooks sent none).

    ``confidence`` is the mean probability of the chosen tokens (0..1, None without any);
    ``repetition`` the share of four-word stretches that occurred before in the answer (0..1).
    """

    length: int
    confidence: float | None
    repetition: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The same prompt in two samplings; a side that has no such answer is None.

    ``traits``: those of both sides, each measured once.
    """

    prompt_id: str
    prompt: str
    left: Answer | None
    right: Answer | None
    diff: tuple[Piece, ...]
    differs: tuple[str, ...]
    verdict: str
    fate: Fate
    traits: tuple[Traits | None, Traits | None] = (None, None)

    @property
    def comparable(self) -> bool:
        return self.left is not None and self.right is not None and not self.differs


def traits(answer: Answer) -> Traits:
    """The numbers of one answer."""
    spoken = answer.text.split()
    chances = [math.exp(p) for p in map(from_cell, answer.token_logprobs) if p <= 0]
    return Traits(
        length=len(answer.token_ids) or len(answer.token_logprobs) or len(spoken),
        confidence=sum(chances) / len(chances) if chances else None,
        repetition=repetition(spoken),
    )


def repetition(spoken: Sequence[str]) -> float:
    """The share of four-word stretches that occurred before among these words (0..1)."""
    stretches = [tuple(spoken[i : i + REPEAT_N]) for i in range(len(spoken) - REPEAT_N + 1)]
    return 1 - len(set(stretches)) / len(stretches) if stretches else 0.0


def pair_up(
    left: Sequence[Answer], right: Sequence[Answer], *, with_diff: bool = True
) -> list[Pair]:
    """Answers of two samplings by prompt: the order of ``right`` first, then what only left has."""
    earlier = {answer.prompt_id: answer for answer in left}
    later = {answer.prompt_id: answer for answer in right}
    order = list(later) + [prompt for prompt in earlier if prompt not in later]
    return [_pair(prompt, earlier.get(prompt), later.get(prompt), with_diff) for prompt in order]


def _pair(prompt_id: str, left: Answer | None, right: Answer | None, with_diff: bool) -> Pair:
    shown = right or left
    prompt = shown.prompt if shown is not None else ""
    before = None if left is None else traits(left)
    after = None if right is None else traits(right)
    if left is None or right is None or before is None or after is None:
        side = "earlier" if left is None else "later"
        said = f"no {side} answer to this prompt"
        return Pair(prompt_id, prompt, left, right, (), (), said, "missing", (before, after))
    differs = what_differs(left, right)
    return Pair(
        prompt_id, prompt, left, right,
        tuple(word_diff(left.text, right.text)) if with_diff else (),
        differs,
        _said(left, right, before, after, differs),
        _fate(left, right, before, after, differs),
        (before, after),
    )  # fmt: skip


def fate(left: Answer, right: Answer, differs: Sequence[str] = ()) -> Fate:
    """Worse or better by the reference answer and the checks; without either, an answer that is
    much shorter and much surer is called worse.
    """
    return _fate(left, right, traits(left), traits(right), differs)


def _fate(
    left: Answer, right: Answer, before: Traits, after: Traits, differs: Sequence[str]
) -> Fate:
    if differs:
        return "apart"
    quality = _quality(left, right)
    if quality:
        return "worse" if quality < 0 else "better"
    if left.text == right.text:
        return "same"
    known = left.reference_nll is not None or bool(left.checks)
    return "worse" if not known and _is_shrunk(before, after) else "changed"


def _quality(left: Answer, right: Answer) -> int:
    """-1 worse, 1 better, 0 neither or unknown."""
    if left.checks and right.checks:
        more = sum(right.checks.values()) - sum(left.checks.values())
        if more:
            return 1 if more > 0 else -1
    if left.reference_nll is None or right.reference_nll is None:
        return 0
    rise = from_cell(right.reference_nll) - from_cell(left.reference_nll)
    return 0 if not abs(rise) > WORSE_NLL else (-1 if rise > 0 else 1)


def _is_shrunk(before: Traits, after: Traits) -> bool:
    if before.confidence is None or after.confidence is None:
        return False
    shorter = after.length < before.length * MUCH_SHORTER
    return shorter and after.confidence - before.confidence > MUCH_SURER


def what_differs(left: Answer, right: Answer) -> tuple[str, ...]:
    """Settings that are not the same, as people call them; empty: the two may be compared."""
    return tuple(label for label, name in SETTINGS if getattr(left, name) != getattr(right, name))


def verdict(left: Answer, right: Answer, differs: Sequence[str] = ()) -> str:
    """In few words, such as "38 % shorter, surer (0.41 -> 0.62)"."""
    return _said(left, right, traits(left), traits(right), differs)


def _said(
    left: Answer, right: Answer, before: Traits, after: Traits, differs: Sequence[str]
) -> str:
    if differs:
        return f"not comparable: {', '.join(differs)} changed"
    said = [
        _length_word(before, after),
        _confidence_word(before, after),
        _repetition_word(before, after),
        _reference_word(left, right),
    ]
    words = ", ".join(word for word in said if word)
    if words:
        return words
    return "the same answer" if left.text == right.text else "much the same"


def _length_word(before: Traits, after: Traits) -> str:
    if before.length == after.length:
        return ""
    if not before.length:
        return "no longer empty"
    if not after.length:
        return "empty now"
    change = after.length / before.length - 1
    if abs(change) < SAME_LENGTH:
        return ""
    return f"{abs(change):.0%}".replace("%", " % ") + ("shorter" if change < 0 else "longer")


def _confidence_word(before: Traits, after: Traits) -> str:
    if before.confidence is None or after.confidence is None:
        return ""
    if abs(after.confidence - before.confidence) < SAME_CONFIDENCE:
        return ""
    word = "surer" if after.confidence > before.confidence else "less sure"
    return f"{word} ({before.confidence:.2f} -> {after.confidence:.2f})"


def _repetition_word(before: Traits, after: Traits) -> str:
    change = after.repetition - before.repetition
    if abs(change) < SAME_REPETITION:
        return ""
    word = "repeats itself more" if change > 0 else "repeats itself less"
    return f"{word} ({before.repetition:.0%} -> {after.repetition:.0%})".replace("%", " %")


def _reference_word(left: Answer, right: Answer) -> str:
    if left.reference_nll is None or right.reference_nll is None:
        return ""
    before, after = from_cell(left.reference_nll), from_cell(right.reference_nll)
    if not abs(after - before) >= SAME_NLL:
        return ""
    word = "closer to the reference" if after < before else "further from the reference"
    return f"{word} (NLL {before:.2f} -> {after:.2f})"
