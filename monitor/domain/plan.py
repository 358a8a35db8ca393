"""What a run has cost, when it will end, and what going back to a checkpoint would lose. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from monitor.domain.alert import Alert
from monitor.domain.run import Attempt, Run, is_past_data
from trainer_hooks.wire import Phase

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was written to its end; ``at`` is the run's own clock (seconds UTC)."""

    step: int
    at: float
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Toll:
    """What an alert's trouble has cost since its onset, and what going back before it would lose.

    ``hours`` are those its processes ran, ``money`` is for these hours (None: no price), ``tokens``
    were trained on meanwhile (None: not told). ``good`` is the last sound checkpoint before the
    onset, ``spoiled`` counts later ones that hold the trouble of another alert:
    going back to it loses the sound work from it to the onset, ``lost_steps`` and ``lost_hours``
    (None: there is none). What came after the onset is not counted as lost: it is the cost above.
    """

    hours: float
    money: float | None
    tokens: float | None
    good: Checkpoint | None
    spoiled: int
    lost_steps: int | None
    lost_hours: float | None


def toll(
    alert: Alert, run: Run | None, attempts: Iterable[Attempt], saved: Sequence[Checkpoint],
    tokens_per_step: float | None = None, alerts: Iterable[Alert] = (),
) -> Toll:  # fmt: skip
    """The toll of an alert until now, or until it was resolved; ``alerts``: all of the run."""
    hours = _hours_since(alert, run, attempts)
    reached = alert.last_step if run is None else max(run.last_step or 0, alert.last_step)
    if alert.resolved_step is not None:
        reached = alert.resolved_step
    steps = max(0, reached - alert.onset_step)
    before = [one for one in saved if one.step < alert.onset_step]
    good = last_before(sound(before, alerts))
    later = [one for one in before if good is None or one.step > good.step]
    return Toll(
        hours=hours,
        money=None if run is None else cost(run, hours),
        tokens=None if tokens_per_step is None else tokens_per_step * steps,
        good=good,
        spoiled=len(later),
        lost_steps=alert.onset_step - good.step if good else None,
        lost_hours=max(0.0, alert.onset_at - good.at) / HOUR_S if good else None,
    )


def _hours_since(alert: Alert, run: Run | None, attempts: Iterable[Attempt]) -> float:
    """Hours the run's processes ran from the onset on, by the trainer's clock."""
    spans = list(attempts)
    if run is None:
        return max(0.0, (alert.resolved_at or alert.opened_at) - alert.onset_at) / HOUR_S
    if is_past_data(run.facts):
        return _past_hours(alert, run, spans)
    end = (alert.resolved_at or run.ended_at or run.last_seen_at) + run.clock_skew_s
    ran = [
        max(0.0, min(until, end) - max(began, alert.onset_at))
        for began, until in _spans(spans, end)
    ]
    return (sum(ran) if ran else max(0.0, end - alert.onset_at)) / HOUR_S


def _past_hours(alert: Alert, run: Run, attempts: Sequence[Attempt]) -> float:
    """Of a run that was over before it came here: its steps since the onset at its mean pace (our
    clock knows nothing of that time)."""
    last = run.last_step or 0
    until = alert.last_step if alert.resolved_step is None else alert.resolved_step
    whole = hours_trained(run, attempts)
    first = min((attempt.first_step for attempt in attempts), default=0)
    share = max(0, min(until, last) - alert.onset_step) / max(1, last - first)
    return whole * min(share, 1.0)


def _spans(attempts: Iterable[Attempt], end: float) -> list[tuple[float, float]]:
    """When each attempt's process ran. One that died without a word ran at most until the next."""
    ordered = sorted(attempts, key=lambda one: one.ordinal)
    nexts = [*(one.started_at for one in ordered[1:]), end][: len(ordered)]
    return [
        (one.started_at, one.ended_at if one.ended_at is not None else max(began, one.started_at))
        for one, began in zip(ordered, nexts, strict=True)
    ]


def hours_trained(run: Run, attempts: Iterable[Attempt]) -> float:
    """Hours its processes ran: those of all attempts, the gaps between them left out."""
    spans = _spans(attempts, run.last_seen_at)
    if not spans:
        spans = [(run.created_at, run.ended_at or run.last_seen_at)]
    return sum(max(0.0, until - began) for began, until in spans) / HOUR_S


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


def sound(saved: Sequence[Checkpoint], alerts: Iterable[Alert]) -> list[Checkpoint]:
    """Checkpoints that were not written during critical trouble: after an onset, before its end.

    Warnings do not spoil one (most are of pace or money, not of the weights), nor does what a
    person has called fine or a rewind has left behind.
    """
    troubles = [
        one
        for one in alerts
        if one.severity == "critical" and one.resolved_reason not in ("was_fine", "superseded")
    ]
    return [
        kept
        for kept in saved
        if not any(
            one.onset_step <= kept.step
            and (one.resolved_step is None or kept.step < one.resolved_step)
            for one in troubles
        )
    ]


def last_before(found: Sequence[Checkpoint], step: int | None = None) -> Checkpoint | None:
    """The last checkpoint at or before a step (of all: without one)."""
    fitting = [one for one in found if step is None or one.step <= step]
    return fitting[-1] if fitting else None
