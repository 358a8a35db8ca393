"""A run, its attempts, and which attempt owns which steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

RunState = Literal["running", "stalled", "lost", "finished", "failed", "interrupted", "terminated"]
LIVE_STATES: frozenset[RunState] = frozenset({"running", "stalled", "lost"})
"""States a run can still leave by itself; the others are ends, until a new attempt begins."""

PAST_DATA = "watchkeeper.past_data"
"""Config entry of a run that was imported: it is judged like any other, but nobody is told."""


def is_past_data(facts: Mapping[str, Any]) -> bool:
    """Whether a run with these facts was over before it came here."""
    config = facts.get("config")
    return isinstance(config, Mapping) and config.get(PAST_DATA) is True


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the store knows it. ``facts`` are the fields of ``wire.RunStart`` as sent.

    ``created_at``, ``last_seen_at`` and ``ended_at`` are server instants (seconds UTC): a trainer's
    clock may be wrong, and staleness is judged by arrival.
    """

    id: str
    name: str
    kind: str
    state: RunState
    created_at: float
    last_seen_at: float
    facts: dict[str, Any] = field(default_factory=dict)
    ended_at: float | None = None
    error: str | None = None
    last_step: int | None = None
    clock_skew_s: float = 0.0
    deleted: bool = False

    @property
    def zone(self) -> str:
        """The IANA zone whose days are this run's days."""
        return str(self.facts.get("zone") or "UTC")

    @property
    def price_per_hour(self) -> float | None:
        price = self.facts.get("price_per_hour")
        return None if price is None else float(price)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One process's stretch of a run. ``ordinal`` orders attempts; later ones own later steps."""

    run: str
    id: str
    ordinal: int
    first_step: int
    started_at: float
    parent: str | None = None
    reason: str = ""
    ended_at: float | None = None
    status: str | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """The half-open step range ``[first_step, before_step)`` of an attempt; ``None``: no end."""

    attempt: str
    ordinal: int
    first_step: int
    before_step: int | None

    def owns(self, step: int) -> bool:
        return step >= self.first_step and (self.before_step is None or step < self.before_step)


def owned_ranges(attempts: Iterable[Attempt]) -> list[Owned]:
    """Which attempt owns which steps, in order of steps.

    An attempt owns from its first step to the first step of whatever later attempt begins lowest:
    going back to step 100 takes 100 and all above from every attempt before. An attempt that owns
    nothing any more is left out; all its points are ghosts.
    """
    ordered = sorted(attempts, key=lambda attempt: attempt.ordinal)
    ranges: list[Owned] = []
    for index, attempt in enumerate(ordered):
        later = [other.first_step for other in ordered[index + 1 :]]
        before = min(later) if later else None
        if before is None or before > attempt.first_step:
            ranges.append(Owned(attempt.id, attempt.ordinal, attempt.first_step, before))
    return ranges


def owner_of(ranges: Sequence[Owned], step: int) -> str | None:
    """The attempt that owns a step, if one does."""
    for owned in ranges:
        if owned.owns(step):
            return owned.attempt
    return None
