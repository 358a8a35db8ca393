"""Sampled answers as the answers page asks for them: days, and two samplings side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monitor.domain.answer import Pair, pair_up, traits
from monitor.domain.diff import is_rough
from monitor.domain.run import Run
from monitor.errors import NotFound
from monitor.services.days import day_before, day_of
from monitor.services.views import AnswerPairs, PairView, SamplingView
from monitor.storage.base import UnitOfWork
from trainer_hooks.wire import Answer, to_plain

__all__ = ["day_of", "samplings", "side_by_side"]

BRIEF_PROMPT = 200
"""Characters of a prompt in a list."""

LONG = ("text", "prompt", "token_ids", "token_texts", "token_logprobs", "token_entropies")
"""Fields of an answer that a list of all prompts does without."""


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
    found = uow.answers.of_sampling(run.id, sampling.id) if sampling else []
    return found if prompt is None else [one for one in found if one.prompt_id == prompt]


def _named(known: list[SamplingView], wanted: str) -> SamplingView:
    for one in known:
        if one.id == wanted:
            return one
    raise NotFound("This run has no such sampling.", hint="GET .../samplings lists them.")


def _view(pair: Pair, brief: bool) -> PairView:
    view = PairView(
        prompt_id=pair.prompt_id,
        prompt=pair.prompt,
        left=_answer(pair.left),
        right=_answer(pair.right),
        diff=list(pair.diff),
        comparable=pair.comparable,
        differs=list(pair.differs),
        verdict=pair.verdict,
        fate=pair.fate,
        rough=bool(pair.left and pair.right and is_rough(pair.left.text, pair.right.text)),
    )
    if not brief:
        return view
    short = pair.prompt[:BRIEF_PROMPT] + ("…" if len(pair.prompt) > BRIEF_PROMPT else "")
    return replace(view, prompt=short, left=_cut(view.left), right=_cut(view.right))


def _cut(side: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if side is None else {k: v for k, v in side.items() if k not in LONG}


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    numbers = traits(answer)
    fields: dict[str, Any] = to_plain(answer)
    return fields | {
        "length": numbers.length,
        "words": len(answer.text.split()),
        "confidence": numbers.confidence,
        "repetition": numbers.repetition,
    }
