"""The morning's digest: of every run, its state, what changed since yesterday, and what is open.

One message a channel, zone and day, at the same time of day by the run's own clock. Its id follows
from these, so that a restart, or a second server, tells nobody twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial

from monitor.clock import Clock
from monitor.domain.alert import Alert
from monitor.domain.ids import message_id
from monitor.domain.plan import HOUR_S, cost
from monitor.domain.routing import route_of
from monitor.domain.run import LIVE_STATES, Run
from monitor.domain.silence import local_day, time_on, zone_of
from monitor.domain.telling import MOST_LISTED
from monitor.formats import load_format
from monitor.formats.base import AlertText
from monitor.services.alerting import money_text
from monitor.services.answers import side_by_side
from monitor.services.overview import Overview
from monitor.services.views import RunSummary
from monitor.storage.base import Channel, Database, OutboxRow, UnitOfWork

PREFIX = "digest"
DAY_S = 86400.0
LATEST_S = 3 * 3600.0
"""A server that was down at the time sends it up to so much later."""
MOST_RUNS = 1000
LOSSES = ("loss/heldout", "loss/probe", "loss/train")


@dataclass(slots=True)
class Digest:
    """Queues digests when they are due, and words them when they leave.

    ``at``: HH:MM in each run's zone; empty: never.
    """

    database: Database
    clock: Clock
    overview: Overview
    at: str = "08:00"
    base_url: str = ""
    told: Callable[[], None] = lambda: None
    _done: set[tuple[str, date]] = field(default_factory=set)

    def run_once(self) -> int:
        """Number of messages queued."""
        now = self.clock()
        if not self.at:
            return 0
        with self.database.read() as uow:
            zones = {run.zone for run in _runs(uow)}
            due = [zone for zone in sorted(zones) if self._is_due(uow, zone, now)]
        queued = 0
        for zone in due:
            queued += self.database.write(partial(self._queue, zone=zone, now=now))
            self._done.add((zone, local_day(now, zone)))
        if queued:
            self.told()
        return queued

    def _is_due(self, uow: UnitOfWork, zone: str, now: float) -> bool:
        day = local_day(now, zone)
        at = time_on(day, self.at, zone)
        if (zone, day) in self._done or not at <= now < at + LATEST_S:
            return False
        return bool(_concerned(uow, zone, at))

    def _queue(self, uow: UnitOfWork, zone: str, now: float) -> int:
        name = f"{PREFIX}:{zone}:{local_day(now, zone)}"
        rows = [
            OutboxRow(
                message_id(name, channel.id, "digest", 0), "", name, channel.id, "digest", now, now,
                detector=PREFIX, severity="info",
            )
            for channel in uow.channels.all()
            if channel.enabled and not load_format(channel.format).lasting
        ]  # fmt: skip
        uow.outbox.enqueue(rows)
        return len(rows)

    def words(self, uow: UnitOfWork, row: OutboxRow) -> AlertText | None:
        """What a queued digest says; None: there is nothing to say to this channel."""
        zone = row.alert.removeprefix(f"{PREFIX}:").rpartition(":")[0]
        return self.compose(uow, zone, row.created_at, uow.channels.get(row.channel))

    def compose(
        self, uow: UnitOfWork, zone: str, now: float, channel: Channel | None = None
    ) -> AlertText | None:
        """The digest of a zone's runs as of now: those a channel hears of, or all."""
        tags = route_of(channel.config).tags if channel is not None else ()
        runs = [
            run
            for run in _concerned(uow, zone, now)
            if not tags or set(tags) & set(run.facts.get("tags") or ())
        ]
        if not runs:
            return None
        told = [self.overview.summary(uow, run) for run in runs]
        lines = [
            line
            for run, summary in list(zip(runs, told, strict=True))[:MOST_LISTED]
            for line in _run_lines(uow, run, summary, now)
        ]
        more = len(runs) - MOST_LISTED
        link = self.base_url if self.base_url.startswith(("http://", "https://")) else ""
        return AlertText(
            _headline(told, zone, now), (*lines, *([f"... and {more} more."] if more > 0 else [])),
            link,
        )  # fmt: skip


def _runs(uow: UnitOfWork) -> list[Run]:
    found = uow.runs.find(states=None, text="", limit=MOST_RUNS, before=None)
    return [run for run in found if not run.deleted]


def _concerned(uow: UnitOfWork, zone: str, at: float) -> list[Run]:
    """Runs of the zone that had begun, and are live or ended in the day before."""
    return [
        run
        for run in _runs(uow)
        if run.zone == zone
        and run.created_at < at
        and (run.state in LIVE_STATES or (run.ended_at or 0.0) > at - DAY_S)
    ]


def _headline(told: list[RunSummary], zone: str, now: float) -> str:
    day = datetime.fromtimestamp(now, zone_of(zone))
    need = sum(one.health in ("act", "look", "lost") for one in told)
    runs = "1 run" if len(told) == 1 else f"{len(told)} runs"
    state = f"{need} need{'s' if need == 1 else ''} a look" if need else "all is well"
    return f"{day:%A} {day.day} {day:%B}: {runs}, {state}"


def _run_lines(uow: UnitOfWork, run: Run, summary: RunSummary, now: float) -> list[str]:
    parts = [_progress(uow, run, summary, now), _tokens(summary), _finish(run, summary)]
    lines = [
        f"{run.name}: {summary.sentence}.",
        f"{'. '.join(part for part in [*parts, _money(run, summary, now)] if part)}.",
    ]
    open_alerts = [a for a in uow.alerts.of_run(run.id, open_only=True) if a.severity != "info"]
    if open_alerts:
        lines.append(f"Open: {'; '.join(map(_named, open_alerts[:MOST_LISTED]))}.")
    changed = _changed_answers(uow, run)
    return [*lines, *([f"Answers that changed most: {changed}"] if changed else [])]


def _named(alert: Alert) -> str:
    seen = ", acknowledged" if alert.state == "acknowledged" else ""
    return f"{alert.title} since step {alert.onset_step:,} ({alert.severity}{seen})"


def _progress(uow: UnitOfWork, run: Run, summary: RunSummary, now: float) -> str:
    """Step and loss now, and how far they moved since yesterday."""
    step = summary.last_step
    if step is None:
        return "No step yet"
    planned = f" of {summary.planned_steps:,}" if summary.planned_steps else ""
    words = f"Step {step:,}{planned}"
    for series in uow.series.named(run.id, LOSSES):
        buckets = uow.blocks.buckets(run.id, [series.number], first_step=None, last_step=None)
        known = [one for one in buckets if one.mean is not None]
        before = [one for one in known if one.first_time <= now - DAY_S]
        if before and known:
            words += f" (+{max(0, step - before[-1].last_step):,} since yesterday)"
            last, first = float(known[-1].mean or 0.0), float(before[-1].mean or 0.0)
            return f"{words}, {series.key} {last:.3f} ({last - first:+.3f})"
    return words


def _tokens(summary: RunSummary) -> str:
    if summary.tokens_seen is None:
        return ""
    for size, name in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if summary.tokens_seen >= size:
            return f"{summary.tokens_seen / size:.2f} {name} tokens"
    return f"{summary.tokens_seen:,.0f} tokens"


def _finish(run: Run, summary: RunSummary) -> str:
    if summary.finish_at is None:
        return ""
    when = datetime.fromtimestamp(summary.finish_at, zone_of(run.zone))
    return f"Done about {when.day} {when:%B %H:%M}"


def _money(run: Run, summary: RunSummary, now: float) -> str:
    if summary.cost_so_far is None:
        return ""
    begin, end = max(now - DAY_S, run.created_at), min(now, run.ended_at or run.last_seen_at)
    hours = max(0.0, end - begin) / HOUR_S
    lately = cost(run, hours)
    since = f" ({money_text(lately, summary.currency)} since yesterday)" if lately else ""
    return f"{money_text(summary.cost_so_far, summary.currency)} so far{since}"


def _changed_answers(uow: UnitOfWork, run: Run) -> str:
    """The prompt whose answers of the last two samplings have least in common."""
    pairs = [pair for pair in side_by_side(uow, run, None, None).pairs if pair.comparable]
    changed = [(_changed_share(pair.diff), pair) for pair in pairs]
    share, worst = max(changed, key=lambda one: one[0], default=(0.0, None))
    if worst is None or share == 0.0:
        return ""
    prompt = worst.prompt_id or worst.prompt[:40]
    return f"{prompt} ({worst.verdict})." if worst.verdict else f"{prompt}."


def _changed_share(diff: list[tuple[str, str]]) -> float:
    same = sum(len(text) for kind, text in diff if kind == "same")
    total = sum(len(text) for _, text in diff)
    return 1.0 - same / total if total else 0.0
