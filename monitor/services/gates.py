"""What is told now, what later, and what in another message; decided when a message would leave.

In this order: route, silence, quiet hours, then what one incident, one rule and run within ten
minutes, or one outage over many runs, have in common. The decision and its marks on other messages
are one transaction, so that nothing is told twice or lost whoever dies when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from monitor.domain.alert import Alert
from monitor.domain.routing import route_of, wants
from monitor.domain.run import Run
from monitor.domain.silence import local_day, parse_hours, silenced_until, time_on
from monitor.domain.telling import FOLD_S, rule_of
from monitor.services.episodes import RANK
from monitor.storage.base import Channel, OutboxRow, UnitOfWork

BEGINNINGS = frozenset({"opened", "reminder"})
UNSETTLED = frozenset({"waiting", "sending", "held"})
SOON_S = 5.0
DIGEST_GRACE_S = 60.0
"""What waits for the digest looks again so long after it should have left."""
LATE_DIGEST_S = 600.0
"""A digest that is not even queued by then does not come."""
NOT_WANTED_S = 30 * 86400.0
DAY_S = 86400.0
QUIET_HOURS = "quiet_hours"
"""Where a channel's config holds quiet hours of its own."""


@dataclass(frozen=True, slots=True)
class Decision:
    """``send``: now, and with it what ``members`` (ids) say; ``hold``: ask again at ``until``;
    ``fold``: another message, ``into``, says it; ``drop``: nobody is to be told."""

    act: Literal["send", "hold", "fold", "drop"]
    until: float = 0.0
    why: str = ""
    into: str = ""
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """A message that would leave. ``lasting``: its receiver keeps alerts itself, one by one."""

    uow: UnitOfWork
    row: OutboxRow
    alert: Alert
    run: Run | None
    channel: Channel
    lasting: bool
    now: float

    @property
    def tags(self) -> Sequence[str]:
        return tuple(self.run.facts.get("tags") or ()) if self.run is not None else ()

    @property
    def zone(self) -> str:
        return self.run.zone if self.run is not None else "UTC"

    @property
    def begins(self) -> bool:
        return self.row.moment in BEGINNINGS


@dataclass(frozen=True, slots=True)
class Gates:
    """``quiet_hours``: ``22:00-07:00 [Zone]`` for channels without their own (empty: none; without
    a zone the run's); ``digest_at``: HH:MM in the run's zone (empty: no digest)."""

    quiet_hours: str = ""
    digest_at: str = ""

    def decide(
        self, uow: UnitOfWork, row: OutboxRow, alert: Alert, channel: Channel, *,
        lasting: bool, now: float,
    ) -> Decision:  # fmt: skip
        """What becomes of a message that has not left yet."""
        run = uow.runs.get(row.run)
        case = _Case(uow, row, alert, run, channel, lasting, now)
        return self._stopped(case) or Decision("send", members=self._members(case))

    def _stopped(self, case: _Case) -> Decision | None:
        for gate in (_too_late, _route, _silence, self._quiet, _untold, _incident, _fold, _end):
            decision = gate(case)
            if decision is not None:
                return decision
        return None

    def _quiet(self, case: _Case) -> Decision | None:
        """At night only criticals are pushed; the rest waits for the morning's digest."""
        if case.alert.severity == "critical" or case.lasting and not case.begins:
            return None
        waits = self._awaited_digest(case)
        if waits is not None:
            return waits
        text = str(case.channel.config.get(QUIET_HOURS) or self.quiet_hours)
        hours = parse_hours(text, case.zone)
        until = hours.until(case.now) if hours is not None else None
        if until is None:
            return None
        if case.lasting or not self.digest_at:
            return Decision("hold", until, "quiet_hours")
        return Decision("hold", self._next_digest(case, until) + DIGEST_GRACE_S, "digest")

    def _next_digest(self, case: _Case, until: float) -> float:
        """The first digest that leaves when the quiet hours are over."""
        at = time_on(local_day(until, case.zone), self.digest_at, case.zone)
        if at < until:
            at = time_on(local_day(until + DAY_S, case.zone), self.digest_at, case.zone)
        return at

    def _awaited_digest(self, case: _Case) -> Decision | None:
        """The digest that says it is late: it still goes first."""
        if case.row.held != "digest" or not self.digest_at:
            return None
        at = time_on(local_day(case.now, case.zone), self.digest_at, case.zone)
        told = case.uow.outbox.of_rule(case.channel.id, "digest", run="")
        on_its_way = any(row.payload is None and row.state in UNSETTLED for row in told)
        not_yet = at <= case.now < at + LATE_DIGEST_S and not any(
            row.created_at >= at for row in told
        )
        late = on_its_way or not_yet
        return Decision("hold", case.now + DIGEST_GRACE_S, "digest") if late else None

    # -- what goes along -----------------------------------------------------------------------

    def _members(self, case: _Case) -> tuple[str, ...]:
        if case.lasting or not case.row.detector:
            return ()
        return (*self._same_rule(case), *self._other_runs(case))

    def _same_rule(self, case: _Case) -> list[str]:
        """What else there is to say of this rule and run: later spells, ends of earlier ones."""
        moments = {*BEGINNINGS, "resolved"} if case.begins else {"resolved"}
        return [
            row.id
            for row in _unsaid(case, run=case.row.run)
            if row.moment in moments and (row.moment in BEGINNINGS or _was_told(case, row))
        ]

    def _other_runs(self, case: _Case) -> list[str]:
        """The same, told of other runs, and waiting for nothing else."""
        found = []
        for row in _unsaid(case, run=None):
            same = row.moment == case.row.moment and row.state != "held"
            alert = case.uow.alerts.get(row.alert) if same and row.run != case.row.run else None
            if alert is None:
                continue
            run = case.uow.runs.get(row.run)
            other = replace(case, row=row, alert=alert, run=run)
            if self._stopped(other) is None:
                found.append(row.id)
                found += self._same_rule(other)
        return found


def _unsaid(case: _Case, *, run: str | None) -> list[OutboxRow]:
    rows = case.uow.outbox.of_rule(case.channel.id, case.row.detector, run=run)
    return [
        row
        for row in rows
        if row.id != case.row.id and row.state in UNSETTLED and row.payload is None
    ]


def _too_late(case: _Case) -> Decision | None:
    """An episode that closed before its message left sends nothing; not so when the run ended."""
    gone = not case.alert.open and case.alert.resolved_reason != "run_ended"
    seen = case.alert.state == "acknowledged" and case.row.moment == "reminder"
    return Decision("drop") if (gone and case.begins) or seen else None


def _route(case: _Case) -> Decision | None:
    wanted = wants(route_of(case.channel.config), severity=case.alert.severity, tags=case.tags)
    if wanted:
        return None
    # It may yet get severe enough.
    if case.begins and case.alert.open:
        return Decision("hold", case.now + NOT_WANTED_S, "route")
    return Decision("drop") if case.begins else None


def _silence(case: _Case) -> Decision | None:
    """What opens in a silence and is still open when it ends is told once, then."""
    if case.lasting and not case.begins:
        return None
    until = silenced_until(
        case.uow.silences.all(), case.row.run, case.alert.detector, case.tags, case.now
    )
    if until is None:
        return None
    if case.begins and not case.alert.open:
        return Decision("drop")
    return Decision("hold", until, "silence")


def _untold(case: _Case) -> Decision | None:
    """Nobody is told of the end, or that somebody has it, of what he was never told of.

    The opening is settled by now, since messages of an alert leave in order; or it was said in
    another message, which may still be on its way.
    """
    if case.row.moment not in ("resolved", "acknowledged"):
        return None
    fate: Decision = Decision("drop")
    for row, _ in case.uow.outbox.of_alert(case.alert.id):
        if row.channel != case.channel.id or row.moment not in BEGINNINGS:
            continue
        if row.state == "sent":
            return None
        said_in = case.uow.outbox.get(row.folded_into) if row.state == "folded" else None
        if said_in is None:
            continue
        if said_in.moment == "digest" and said_in.state != "sent":
            fate = Decision("fold", into=said_in.id)
        elif _is_of_incident(case, said_in):
            fate = Decision("fold", into=said_in.id)
        elif said_in.state == "sent":
            return None
        elif said_in.state in UNSETTLED:
            fate = Decision("hold", case.now + SOON_S, "opening")
    return fate


def _was_told(case: _Case, row: OutboxRow) -> bool:
    """Whether the beginning of what this says is over was told, or is about to be."""
    alert = case.uow.alerts.get(row.alert)
    if alert is None:
        return False
    found = _untold(replace(case, row=row, alert=alert))
    return found is None or found.act != "drop"


def _is_of_incident(case: _Case, row: OutboxRow) -> bool:
    """Whether a message tells of the same run's incident by another of its detectors."""
    return row.run == case.row.run and row.detector not in ("digest", case.row.detector)


def _incident(case: _Case) -> Decision | None:
    """What belongs to an incident somebody knows of is listed there, unless it is more severe."""
    if case.lasting or not case.begins or not case.row.detector:
        return None
    for other in case.uow.alerts.of_incident(case.alert.incident or case.alert.id):
        if other.id == case.alert.id or not other.open or other.detector == case.alert.detector:
            continue
        for row, _ in case.uow.outbox.of_alert(other.id):
            said_in = case.uow.outbox.get(row.folded_into) if row.state == "folded" else row
            if row.channel != case.channel.id or said_in is None or said_in.moment == "digest":
                continue
            if _tells(replace(said_in, severity=row.severity), case.alert):
                return Decision("fold", into=said_in.id)
    return None


def _tells(row: OutboxRow, alert: Alert) -> bool:
    """Whether a message that left, or is leaving, said something as severe."""
    left = row.state == "sent" or (row.payload is not None and row.state in UNSETTLED)
    severe = RANK.get(row.severity, 0) >= RANK[alert.severity]
    return left and severe and row.moment in BEGINNINGS


def _fold(case: _Case) -> Decision | None:
    """One beginning per rule and run in ten minutes, unless it is more severe."""
    if case.lasting or not case.begins or not case.row.detector:
        return None
    for row in case.uow.outbox.of_rule(case.channel.id, case.row.detector, run=case.row.run):
        if row.id == case.row.id or not _tells(row, case.alert):
            continue
        if row.state != "sent":
            return Decision("hold", case.now + SOON_S, "fold")
        until = (row.settled_at or 0.0) + FOLD_S
        if until > case.now:
            return Decision("hold", until, "fold")
    return None


def _end(case: _Case) -> Decision | None:
    """An end is told unless it began again since; then with what is told of that."""
    if case.lasting or case.row.moment != "resolved" or not case.row.detector:
        return None
    rows = case.uow.outbox.of_rule(case.channel.id, case.row.detector, run=case.row.run)
    since = case.alert.resolved_at or case.now
    spells = case.uow.alerts.of_detector(case.row.run, case.alert.detector, since=since)
    again = any(one.id != case.alert.id and rule_of(one) == case.row.detector for one in spells)
    coming = [
        row.due_at
        for row in rows
        if row.moment in BEGINNINGS and row.payload is None and row.state in UNSETTLED
    ]
    if coming:
        return Decision("hold", max(min(coming), case.now) + SOON_S, "fold")
    told = [row for row in rows if row.state == "sent" and (again or row.moment == "resolved")]
    until = max(((row.settled_at or 0.0) + FOLD_S for row in told), default=0.0)
    return Decision("hold", until, "fold") if until > case.now else None
