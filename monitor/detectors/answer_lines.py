"""Samplings of answers, and which of them can be compared with one another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Numbers = dict[str, Any]
"""One answer's summary, as ``domain.answer_metrics.summary`` makes it."""


@dataclass(slots=True)
class Sampling:
    """Answers of one sampling by prompt."""

    id: str = ""
    step: int = 0
    size: int = 0
    at: float = 0.0
    answers: dict[str, Numbers] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    """What is compared with one another. ``good``, ``since``: step and time of the last sampling
    that was as before, and of what may have been the first that was not."""

    reference: Sampling
    good: tuple[int, float] | None = None
    since: tuple[int, float] | None = None


def line_of(saved: dict[str, Any]) -> Line:
    marks = (None if saved[name] is None else tuple(saved[name]) for name in ("good", "since"))
    return Line(Sampling(**saved["reference"]), *marks)


def pairs_of(then: Sampling, now: Sampling) -> list[tuple[Numbers, Numbers]]:
    """The answers of both to the same prompts, earlier and later."""
    return [
        (earlier, answer)
        for prompt, answer in sorted(now.answers.items())
        if (earlier := then.answers.get(prompt)) is not None and _comparable(earlier, answer)
    ]


def _comparable(then: Numbers, now: Numbers) -> bool:
    """Asked and decoded alike, and neither spoilt by numbers that are none."""
    alike: bool = then["settings"] == now["settings"]
    return alike and "non_finite" not in (then["stop_reason"], now["stop_reason"])
