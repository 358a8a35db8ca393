"""What the API and the live stream show, as plain frozen records: one shape for both.

Field names are the JSON's. Non-finite numbers leave as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from monitor.domain.alert import AlertChange
from monitor.domain.plan import Checkpoint
from trainer_hooks.wire import Asleep, Number

Health = Literal["act", "look", "healthy", "lost", "finished", "failed", "stopped"]
"""``act``: an open critical nobody acknowledged; ``look``: an open warning, an acknowledged
critical, or a stall."""


@dataclass(frozen=True, slots=True)
class Spark:
    """A small line of one series, thinned to be looked at from afar."""

    key: str
    steps: list[int] = field(default_factory=list)
    values: list[Number] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OpenAlerts:
    """Open alerts by severity."""

    critical: int = 0
    warning: int = 0
    info: int = 0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list. Instants are seconds UTC; ``tokens_per_s`` and cost None: not known."""

    id: str
    name: str
    kind: str
    state: str
    health: Health
    sentence: str
    created_at: float
    last_seen_at: float
    ended_at: float | None
    last_step: int | None
    planned_steps: int | None
    tokens_seen: float | None
    tokens_per_s: float | None
    price_per_hour: float | None
    currency: str
    cost_so_far: float | None
    finish_at: float | None
    zone: str
    open_alerts: OpenAlerts
    spark: Spark


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt, and the half-open range of steps it owns."""

    id: str
    ordinal: int
    first_step: int
    before_step: int | None
    started_at: float
    ended_at: float | None
    status: str | None
    last_step: int | None


@dataclass(frozen=True, slots=True)
class Accounts:
    """Counted in values: produced = stored + duplicate + refused + queued + spooled + dropped.

    ``hook_errors`` is no count of values: exceptions that were caught in the hooks.
    """

    produced: int = 0
    stored: int = 0
    duplicate: int = 0
    refused: int = 0
    queued: int = 0
    spooled: int = 0
    dropped: int = 0
    overwritten: int = 0
    hook_errors: int = 0


@dataclass(frozen=True, slots=True)
class RunDetail(RunSummary):
    """A run with its facts. ``cursor`` is where the live stream goes on from."""

    facts: dict[str, Any]
    attempts: list[AttemptView]
    asleep: list[Asleep]
    accounts: Accounts
    last_checkpoint: Checkpoint | None
    series_count: int
    cursor: str
    clock_skew_s: float


@dataclass(frozen=True, slots=True)
class AlertView:
    """An alert with what it has cost since its onset and what going back would lose: the sound work
    from the last checkpoint before the onset to the onset."""

    id: str
    run: str
    detector: str
    subject: str
    episode: int
    state: str
    severity: str
    title: str
    attempt: str
    onset_step: int
    onset_at: float
    opened_step: int
    opened_at: float
    last_step: int
    evidence: dict[str, Any]
    acknowledged_at: float | None
    acknowledged_by: str | None
    acknowledged_note: str
    resolved_step: int | None
    resolved_at: float | None
    resolved_reason: str | None
    incident: str
    run_name: str
    currency: str
    cost_so_far: float | None
    hours_since_onset: float
    tokens_since_onset: float | None
    last_checkpoint: Checkpoint | None
    lost_by_going_back_steps: int | None
    lost_by_going_back_hours: float | None
    runbook: str


@dataclass(frozen=True, slots=True)
class TryView:
    """One try at delivering a message."""

    at: float
    status: int | None
    latency_s: float
    error: str


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message an alert sent, or will send, to one channel.

    ``held``: why it was kept back, if it was; ``folded_into``: the message that says it too.
    """

    id: str
    channel: str
    moment: str
    state: str
    created_at: float
    due_at: float
    settled_at: float | None
    held: str
    folded_into: str
    tries: list[TryView]
    channel_name: str = ""


@dataclass(frozen=True, slots=True)
class IncidentMember:
    """An alert of an incident, in few words."""

    id: str
    detector: str
    title: str
    severity: str
    state: str
    onset_step: int


@dataclass(frozen=True, slots=True)
class AlertDetail(AlertView):
    """An alert with its history, its messages, and its text as a message would put it.

    ``incident_alerts``: all alerts of its incident, by onset; ``incident_headline`` counts them.
    """

    incident_headline: str
    incident_alerts: list[IncidentMember]
    changes: list[AlertChange]
    messages: list[MessageView]
    text: str


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A series of a run and its newest value (of the attempt that owns the step)."""

    key: str
    name: str
    group: str
    source: str
    unit: str
    family: str
    help: str
    better: str
    last_step: int | None
    last_value: Number | None


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that happened at a step."""

    attempt: str
    name: str
    step: int
    at: float
    text: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PhaseView:
    """A declared stretch; without ``end_step`` it is under way."""

    attempt: str
    phase_id: str
    name: str
    begin_step: int
    begin_at: float
    end_step: int | None
    end_at: float | None
    path: str | None
    text: str


@dataclass(frozen=True, slots=True)
class SamplingView:
    """One sampling; ``day`` is its date in the run's zone (YYYY-MM-DD)."""

    id: str
    weights_step: int
    at: float
    day: str
    attempt: str
    count: int
    prompt_set_hash: str


@dataclass(frozen=True, slots=True)
class PairView:
    """The same prompt in two samplings; ``diff`` is a list of [same | cut | add, text].

    ``rough``: the texts are so long that they were compared line by line. ``fate`` is worse,
    better, changed, same, apart (not comparable) or missing.

    A side holds the fields of ``wire.Answer`` and beside them ``length`` (tokens), ``confidence``
    (mean probability of the chosen tokens, 0..1 or null) and ``repetition`` (share, 0..1).
    """

    prompt_id: str
    prompt: str
    left: dict[str, Any] | None
    right: dict[str, Any] | None
    diff: list[tuple[str, str]]
    comparable: bool
    differs: list[str]
    verdict: str
    fate: str = "changed"
    rough: bool = False


@dataclass(frozen=True, slots=True)
class AnswerPairs:
    """All pairs of two samplings of a run (a side is None where the run has none).

    ``note`` says what was compared where it is not what one would expect: a day without answers.
    """

    left: SamplingView | None
    right: SamplingView | None
    pairs: list[PairView]
    note: str = ""


@dataclass(frozen=True, slots=True)
class DayView:
    """A day of the run's zone: its samplings, oldest first, and the one that is shown (the last).

    A day without any is a gap: ``shown`` is None.
    """

    day: str
    samplings: list[str]
    shown: str | None


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One sampling in numbers; see ``domain.answer_metrics.SetMetrics``.

    ``like_before`` and ``like_first`` are about the share of words it has in common with the
    sampling before and with the first one of its prompt set (0..1).
    """

    sampling: str
    weights_step: int
    at: float
    day: str
    prompt_set_hash: str
    numbers: dict[str, Any]
    like_before: float | None
    like_first: float | None


@dataclass(frozen=True, slots=True)
class PromptTrend:
    """One prompt over all samplings, in the order of the points; None where it was not asked."""

    prompt_id: str
    length: list[int | None]
    confidence: list[float | None]


@dataclass(frozen=True, slots=True)
class AlertMark:
    """An alert about answers or their sampling, to be drawn on the trends."""

    id: str
    detector: str
    title: str
    state: str
    onset_step: int
    opened_step: int
    opened_at: float
    resolved_step: int | None


@dataclass(frozen=True, slots=True)
class AnswerTrends:
    """All samplings of a run as trends, with the days they lie on. Empty without answers.

    ``sets`` lists the prompt sets in order of use: numbers of different ones are not comparable.
    """

    zone: str
    points: list[TrendPoint]
    days: list[DayView]
    prompts: list[PromptTrend]
    alerts: list[AlertMark]
    sets: list[str]


@dataclass(frozen=True, slots=True)
class WindowView:
    """A sampling window and what it did to the training; see ``domain.interference``.

    Times in seconds; ``loss_change`` in nats, after minus before.
    """

    id: str
    who: str
    path: str | None
    begin_step: int
    begin_at: float
    end_step: int
    end_at: float
    effect: str
    hurt: bool
    lasts: bool
    verdict: str
    step_before_s: float | None
    step_inside_s: float | None
    step_after_s: float | None
    wait_before_s: float | None
    wait_inside_s: float | None
    loss_change: float | None
