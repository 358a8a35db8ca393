"""Sampled answers as the answers page asks for them: days, and two samplings side by side."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from monitor.domain.answer import Pair, Traits, pair_up
from monitor.domain.diff import is_rough
from monitor.domain.run import Run
from monitor.errors import NotFound
from monitor.services.days import day_before, day_of
from monitor.services.views import AnswerPairs, PairView, SamplingView
from monitor.storage.base import UnitOfWork
from trainer_hooks.wire import Answer

__all__ = ["day_of", "samplings", "side_by_side"]

BRIEF_PROMPT = 200
"""Characters of a prompt in a list."""

LONG = ("text", "prompt", "token_ids", "token_texts", "token_logprobs", "token_entropies")
"""Fields of an answer that a list of all prompts does without."""

FIELDS = tuple(one.name for one in fields(Answer))
SHORT_FIELDS = tuple(name for name in FIELDS if name not in LONG)


def samplings(uow: UnitOfWork, run: Run) -> list[SamplingView]:
    """All samplings of a run, oldest first, with their day in the run's zone."""
    return [
        SamplingView(
            id=str(one["id"]),
            weights_step=int(one["weights_step"]),
            at=float(one["at"]),
            day=day_of(float(one["at"]), run.zone),
            attempt=str(one["attempt"]),
            count=int(one["count"]),
            prompt_set_hash=str(one.get("prompt_set_hash") or ""),
        )
        for one in uow.answers.samplings(run.id)
    ]


def side_by_side(
    uow: UnitOfWork,
    run: Run,
    left: str | None,
    right: str | None,
    *,
    prompt: str | None = None,
    brief: bool = False,
) -> AnswerPairs:
    """Two samplings paired by prompt; without a choice the latest, and that of the day before.

    ``prompt``: that pair alone. ``brief``: numbers and verdicts of all, without texts and tokens.

    Raises:
        NotFound: the run has no such sampling.
    """
    known = samplings(uow, run)
    later = _named(known, right) if right else (known[-1] if known else None)
    earlier, note = (_named(known, left), "") if left else day_before(known, later)
    pairs = pair_up(
        _answers(uow, run, earlier, prompt), _answers(uow, run, later, prompt), with_diff=not brief
    )
    return AnswerPairs(earlier, later, [_view(pair, brief) for pair in pairs], note)


def _answers(
    uow: UnitOfWork, run: Run, sampling: SamplingView | None, prompt: str | None
) -> list[Answer]:
    return uow.answers.of_sampling(run.id, sampling.id, prompt) if sampling else []


def _named(known: list[SamplingView], wanted: str) -> SamplingView:
    for one in known:
        if one.id == wanted:
            return one
    raise NotFound("This run has no such sampling.", hint="GET .../samplings lists them.")


def _view(pair: Pair, brief: bool) -> PairView:
    short = brief and len(pair.prompt) > BRIEF_PROMPT
    return PairView(
        prompt_id=pair.prompt_id,
        prompt=pair.prompt[:BRIEF_PROMPT] + "…" if short else pair.prompt,
        left=_answer(pair.left, pair.traits[0], brief),
        right=_answer(pair.right, pair.traits[1], brief),
        diff=list(pair.diff),
        comparable=pair.comparable,
        differs=list(pair.differs),
        verdict=pair.verdict,
        fate=pair.fate,
        rough=bool(pair.left and pair.right and is_rough(pair.left.text, pair.right.text)),
    )


def _answer(answer: Answer | None, numbers: Traits | None, brief: bool) -> dict[str, Any] | None:
    if answer is None or numbers is None:
        return None
    known = {name: getattr(answer, name) for name in (SHORT_FIELDS if brief else FIELDS)}
    return known | {
        "length": numbers.length,
        "words": len(answer.text.split()),
        "confidence": numbers.confidence,
        "repetition": numbers.repetition,
    }
