"""Runs and alerts as people are shown them: health, one sentence, cost, finish, what is asleep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from monitor.clock import Clock, wall_s
from monitor.detectors.base import WARMUP_STEPS
from monitor.domain.alert import Alert
from monitor.domain.incident import incidents
from monitor.domain.plan import (
    HOUR_S,
    Checkpoint,
    checkpoints,
    cost,
    finish_at,
    hours_trained,
    last_before,
)
from monitor.domain.run import LIVE_STATES, Attempt, Run, RunState, owned_ranges
from monitor.services.alerting import alert_text
from monitor.services.costs import toll_of
from monitor.services.cursors import encode_cursor
from monitor.services.detection import doubts
from monitor.services.latest import SPARK_KEY, Latest, Recent
from monitor.services.views import (
    Accounts,
    AlertDetail,
    AlertView,
    AttemptView,
    Health,
    IncidentMember,
    MessageView,
    OpenAlerts,
    RunDetail,
    RunSummary,
    SeriesView,
    Spark,
    TryView,
)
from monitor.storage.base import SourceState, UnitOfWork
from trainer_hooks.wire import Asleep, to_cell

ENDS: Mapping[str, Health] = {
    "finished": "finished",
    "failed": "failed",
    "interrupted": "stopped",
    "terminated": "stopped",
}
SEVERITIES = ("critical", "warning", "info")
REMEMBERED = 5_000
MOST_ALERTS = 10_000
TOKENS_SEEN = "tokens_seen"
TOKENS_PER_S = "tokens_per_s"


@dataclass(slots=True)
class Overview:
    """Builds views inside a transaction somebody else opened."""

    latest: Latest
    clock: Clock = wall_s
    base_url: str = ""
    _summaries: dict[str, tuple[tuple[object, ...], RunSummary]] = field(default_factory=dict)

    def runs(
        self, uow: UnitOfWork, *, states: Sequence[RunState] | None, text: str, limit: int
    ) -> list[RunSummary]:
        """Newest first."""
        found = uow.runs.find(states=states, text=text, limit=limit, before=None)
        counts = uow.alerts.open_counts()
        heads = uow.log.heads()
        as_of = {
            run.id: (heads.get(run.id, 0), run.state, run.last_seen_at, counts.get(run.id, {}))
            for run in found
        }
        new = [run for run in found if not self._is_known(run, as_of[run.id])]
        made = {one.id: one for one in self._summaries_of(uow, new, counts)}
        if len(self._summaries) + len(made) > REMEMBERED:
            self._summaries.clear()
        listed = [made.get(run.id) or self._summaries[run.id][1] for run in found]
        self._summaries |= {run: (as_of[run], summary) for run, summary in made.items()}
        return listed

    def _is_known(self, run: Run, as_of: tuple[object, ...]) -> bool:
        """Whether nothing has happened since its summary was made: all that does is in the log."""
        known = self._summaries.get(run.id)
        return known is not None and known[0] == as_of and run.state != "lost"

    def _summaries_of(
        self, uow: UnitOfWork, runs: Sequence[Run], counts: Mapping[str, Mapping[str, int]]
    ) -> list[RunSummary]:
        """With a few questions for all of them: a list of hundreds is looked at often."""
        ids = [run.id for run in runs]
        recent = self.latest.brief(uow, ids)
        attempts = uow.glances.attempts(ids)
        saved = uow.glances.checkpoints(ids)
        alerts: dict[str, list[Alert]] = {}
        if any(counts.get(run, {}) for run in ids):
            one = ids[0] if len(ids) == 1 else None
            for alert in uow.alerts.find(open_only=True, run=one, limit=MOST_ALERTS):
                alerts.setdefault(alert.run, []).append(alert)
        return [
            self._summary(
                run,
                recent[run.id],
                counts.get(run.id, {}),
                alerts.get(run.id, []),
                attempts.get(run.id, []),
                checkpoints(saved.get(run.id, [])),
            )
            for run in runs
        ]

    def summary(self, uow: UnitOfWork, run: Run) -> RunSummary:
        """A run in few numbers and one sentence."""
        return self._summaries_of(uow, [run], {run.id: uow.alerts.open_counts().get(run.id, {})})[0]

    def _summary(
        self,
        run: Run,
        recent: Recent,
        counts: Mapping[str, int],
        alerts: Sequence[Alert],
        attempts: Sequence[Attempt],
        saved: Sequence[Checkpoint],
    ) -> RunSummary:
        health = health_of(run, alerts)
        return RunSummary(
            id=run.id,
            name=run.name,
            kind=run.kind,
            state=run.state,
            health=health,
            sentence=sentence_of(run, health, alerts, saved, self.clock()),
            created_at=run.created_at,
            last_seen_at=run.last_seen_at,
            ended_at=run.ended_at,
            last_step=run.last_step,
            planned_steps=run.facts.get("planned_steps"),
            tokens_seen=_finite(recent, TOKENS_SEEN),
            tokens_per_s=_finite(recent, TOKENS_PER_S),
            price_per_hour=run.price_per_hour,
            currency=str(run.facts.get("currency") or "USD"),
            cost_so_far=cost(run, hours_trained(run, attempts)),
            finish_at=None if run.ended_at else finish_at(run, recent.steps_per_s()),
            zone=run.zone,
            open_alerts=OpenAlerts(**{name: counts.get(name, 0) for name in SEVERITIES}),
            spark=_spark(recent),
        )

    def detail(self, uow: UnitOfWork, run: Run) -> RunDetail:
        """A run with its facts, attempts and accounts."""
        summary = self.summary(uow, run)
        return RunDetail(
            **{name: getattr(summary, name) for name in RunSummary.__dataclass_fields__},
            facts=run.facts,
            attempts=_attempts(uow.runs.attempts(run.id)),
            asleep=[*_asleep(run.facts), *_unsure(uow, run)],
            accounts=_accounts(uow.log.sources(run.id)),
            last_checkpoint=last_before(checkpoints(uow.events.phases(run.id))),
            series_count=len(uow.series.all(run.id)),
            cursor=encode_cursor({run.id: (uow.log.head(run.id), 0)}),
            clock_skew_s=run.clock_skew_s,
        )

    def series(self, uow: UnitOfWork, run: str) -> list[SeriesView]:
        """All series of a run with their newest values."""
        recent = self.latest.of(uow, run)
        shown = []
        for one in uow.series.all(run):
            last = recent.values.get(one.key)
            shown.append(
                SeriesView(
                    key=one.key,
                    name=one.name,
                    group=one.group,
                    source=one.source,
                    unit=one.unit,
                    family=one.family,
                    help=one.help,
                    better=one.better,
                    last_step=last.step if last else None,
                    last_value=to_cell(last.value) if last else None,
                )
            )
        return shown

    def alert(self, uow: UnitOfWork, alert: Alert) -> AlertView:
        """An alert with what it costs and what going back would lose."""
        run, so_far = uow.runs.get(alert.run), toll_of(uow, alert)
        return AlertView(
            **{f.name: getattr(alert, f.name) for f in fields(alert)},
            run_name=run.name if run is not None else alert.run,
            currency=str(run.facts.get("currency") or "USD") if run is not None else "USD",
            cost_so_far=so_far.money,
            hours_since_onset=so_far.hours,
            tokens_since_onset=so_far.tokens,
            last_checkpoint=so_far.good,
            lost_by_going_back_steps=so_far.lost_steps,
            lost_by_going_back_hours=so_far.lost_hours,
            runbook=f"/docs/detectors/{alert.detector}",
        )

    def alert_detail(self, uow: UnitOfWork, alert: Alert) -> AlertDetail:
        """An alert with its history, its messages, and its text as a message would put it."""
        view = self.alert(uow, alert)
        incident = incidents(uow.alerts.of_incident(view.incident) or [alert])[0]
        named = {channel.id: channel.name for channel in uow.channels.all()}
        messages = [
            MessageView(
                id=row.id,
                channel=row.channel,
                moment=row.moment,
                state=row.state,
                created_at=row.created_at,
                due_at=row.due_at,
                settled_at=row.settled_at,
                held=row.held,
                folded_into=row.folded_into,
                tries=[TryView(t.at, t.status, t.latency_s, t.error) for t in tries],
                channel_name=named.get(row.channel, row.channel),
            )
            for row, tries in uow.outbox.of_alert(alert.id)
        ]
        return AlertDetail(
            **{f.name: getattr(view, f.name) for f in fields(AlertView)},
            incident_headline=incident.headline,
            incident_alerts=[
                IncidentMember(a.id, a.detector, a.title, a.severity, a.state, a.onset_step)
                for a in incident.alerts
            ],
            changes=uow.alerts.changes(alert.id),
            messages=messages,
            text=str(alert_text(uow, alert, moment="opened", base_url=self.base_url)),
        )


def health_of(run: Run, alerts: Sequence[Alert]) -> Health:
    """The lamp of a run. An end wins over everything, silence over alerts that are not acute."""
    if run.state in ENDS:
        return ENDS[run.state]
    if any(a.severity == "critical" and a.state == "firing" for a in alerts):
        return "act"
    if run.state == "lost":
        return "lost"
    if run.state == "stalled" or any(a.severity in {"critical", "warning"} for a in alerts):
        return "look"
    return "healthy"


def sentence_of(
    run: Run, health: Health, alerts: Sequence[Alert], saved: Sequence[Checkpoint], now: float
) -> str:
    """The one sentence that leads a run's page."""
    if run.state in ENDS:
        return _ending(run)
    if run.state == "lost":
        return f"Lost: nothing heard for {_span(now - run.last_seen_at)}"
    if health in {"act", "look"} and alerts:
        return _trouble(alerts, saved)
    if run.state == "stalled":
        return f"Stalled at step {run.last_step or 0:,}: heartbeats arrive, but no new step"
    if (run.last_step or 0) < WARMUP_STEPS:
        return f"Warming up: nothing is judged before step {WARMUP_STEPS}"
    good = last_before(saved)
    return f"Healthy; last checkpoint {good.step:,}" if good else "Healthy; no checkpoint yet"


def _ending(run: Run) -> str:
    words = {
        "finished": "Finished",
        "failed": "Failed",
        "interrupted": "Interrupted",
        "terminated": "Terminated",
    }
    error = f" ({run.error})" if run.error else ""
    at = f" at step {run.last_step:,}" if run.last_step is not None else ""
    return f"{words[run.state]}{error}{at}"


def _trouble(alerts: Sequence[Alert], saved: Sequence[Checkpoint]) -> str:
    worst = min(alerts, key=lambda a: (SEVERITIES.index(a.severity), a.onset_step))
    title = worst.title[:1].upper() + worst.title[1:]
    good = last_before(saved, worst.onset_step - 1)
    back = f"; last checkpoint before it {good.step:,}" if good else "; no checkpoint before it"
    more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
    return f"{title} since step {worst.onset_step:,}{more}{back}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.0f} h"


def _finite(recent: Recent, key: str) -> float | None:
    last = recent.values.get(key)
    return last.value if last is not None and math.isfinite(last.value) else None


def _spark(recent: Recent) -> Spark:
    line = recent.spark
    return Spark(SPARK_KEY, list(line.steps), [to_cell(value) for value in line.values])


def _attempts(attempts: Sequence[Attempt]) -> list[AttemptView]:
    before = {owned.attempt: owned.before_step for owned in owned_ranges(attempts)}
    return [
        AttemptView(
            id=one.id,
            ordinal=one.ordinal,
            first_step=one.first_step,
            before_step=before.get(one.id, one.first_step),
            started_at=one.started_at,
            ended_at=one.ended_at,
            status=one.status,
            last_step=one.last_step,
        )
        for one in sorted(attempts, key=lambda one: one.ordinal)
    ]


def _asleep(facts: Mapping[str, Any]) -> list[Asleep]:
    return [one if isinstance(one, Asleep) else Asleep(**one) for one in facts.get("asleep") or []]


def _unsure(uow: UnitOfWork, run: Run) -> list[Asleep]:
    """Detectors of a live run that cannot tell yet, and what it would take."""
    if run.state not in LIVE_STATES:
        return []
    return [Asleep(name, text, "") for name, text in sorted(doubts(uow, run.id).items())]


def _accounts(sources: Sequence[SourceState]) -> Accounts:
    """The server's own count of what it holds, the clients' of what they have not yet sent."""

    def client(name: str) -> int:
        return sum(int(source.client.get(name) or 0) for source in sources)

    return Accounts(
        produced=client("produced"),
        stored=sum(source.stored for source in sources),
        duplicate=sum(source.duplicate for source in sources),
        refused=sum(source.refused for source in sources),
        queued=client("queued"),
        spooled=client("spooled"),
        dropped=client("dropped"),
        overwritten=sum(source.overwritten for source in sources),
        hook_errors=client("hook_errors"),
    )
