"""What a run has cost, when it will end, and what going back to a checkpoint would lose. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from monitor.domain.run import Attempt, Run
from trainer_hooks.wire import Phase

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was written to its end; ``at`` is the run's own clock (seconds UTC)."""

    step: int
    at: float
    path: str | None = None


def hours_trained(run: Run, attempts: Iterable[Attempt]) -> float:
    """Hours its processes ran: those of all attempts, the gaps between them left out."""
    spans = [
        max(0.0, (attempt.ended_at or run.last_seen_at) - attempt.started_at)
        for attempt in attempts
    ]
    if not spans:
        spans = [max(0.0, (run.ended_at or run.last_seen_at) - run.created_at)]
    return sum(spans) / HOUR_S


def cost(run: Run, hours: float) -> float | None:
    """Money for so many hours, in the run's currency; None without a price."""
    price = run.price_per_hour
    return None if price is None else price * hours


def finish_at(run: Run, steps_per_s: float | None) -> float | None:
    """When the planned steps will be done at this pace (server's clock); None: cannot tell."""
    planned = run.facts.get("planned_steps")
    if not planned or not steps_per_s or run.last_step is None:
        return None
    return run.last_seen_at + max(0, int(planned) - run.last_step) / steps_per_s


def checkpoints(phases: Iterable[tuple[str, Phase]]) -> list[Checkpoint]:
    """All finished checkpoints, by step. One that is still being written cannot be gone back to."""
    done = [
        Checkpoint(phase.begin_step, phase.end_at, phase.path)
        for _, phase in phases
        if phase.name == "checkpoint" and phase.end_at is not None
    ]
    return sorted(done, key=lambda one: one.step)


def last_before(found: Sequence[Checkpoint], step: int | None = None) -> Checkpoint | None:
    """The last checkpoint at or before a step (of all: without one)."""
    fitting = [one for one in found if step is None or one.step <= step]
    return fitting[-1] if fitting else None
