"""Sampled answers as the answers page asks for them: days, and two samplings side by side."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from monitor.domain.answer import Pair, pair_up, traits
from monitor.domain.run import Run
from monitor.errors import NotFound
from monitor.services.views import AnswerPairs, PairView, SamplingView
from monitor.storage.base import UnitOfWork
from trainer_hooks.wire import Answer, to_plain


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


def side_by_side(uow: UnitOfWork, run: Run, left: str | None, right: str | None) -> AnswerPairs:
    """Two samplings paired by prompt; without a choice the latest two.

    Raises:
        NotFound: the run has no such sampling.
    """
    known = samplings(uow, run)
    later = _choose(known, right, -1)
    earlier = _choose(known, left, -2)
    pairs = pair_up(
        uow.answers.of_sampling(run.id, earlier.id) if earlier else [],
        uow.answers.of_sampling(run.id, later.id) if later else [],
    )
    return AnswerPairs(earlier, later, [_view(pair) for pair in pairs])


def day_of(at: float, zone: str) -> str:
    """The date of an instant in a zone, as YYYY-MM-DD; UTC where the zone is not known.

    Empty for an instant no calendar has.
    """
    try:
        return datetime.fromtimestamp(at, _place(zone)).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _place(zone: str) -> tzinfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _choose(known: list[SamplingView], wanted: str | None, place: int) -> SamplingView | None:
    if wanted is None:
        return known[place] if len(known) >= -place else None
    for one in known:
        if one.id == wanted:
            return one
    raise NotFound("This run has no such sampling.", hint="GET .../samplings lists them.")


def _view(pair: Pair) -> PairView:
    return PairView(
        prompt_id=pair.prompt_id,
        prompt=pair.prompt,
        left=_answer(pair.left),
        right=_answer(pair.right),
        diff=list(pair.diff),
        comparable=pair.comparable,
        differs=list(pair.differs),
        verdict=pair.verdict,
    )


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    numbers = traits(answer)
    fields: dict[str, Any] = to_plain(answer)
    return fields | {
        "length": numbers.length,
        "confidence": numbers.confidence,
        "repetition": numbers.repetition,
    }
