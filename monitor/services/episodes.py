"""Verdicts in, changes of alerts out: the memory of every subject of one run. Pure.

The same verdicts and ticks give the same effects, in whatever pieces they come. Instants of alerts
are those of the log entries that caused them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from monitor.detectors.base import Evidence, Hold, Verdict
from monitor.domain.alert import (
    Alert,
    AlertChange,
    Hysteresis,
    Moment,
    Track,
    TrackInput,
    advance,
)
from monitor.domain.ids import alert_id
from monitor.domain.incident import incident_of
from monitor.domain.log import LogEntry
from trainer_hooks.wire import to_plain

REMIND_AFTER_S = 6 * 3600.0
RANK = {"info": 0, "warning": 1, "critical": 2}

Key = tuple[str, str]
"""(detector, subject)."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One alert as it now is; what changed, if its state did; whether somebody is to be told."""

    alert: Alert
    change: AlertChange | None = None
    tell: Moment | None = None
    telling: int = 0


@dataclass(slots=True)
class _Subject:
    """Memory of one (detector, subject). ``told_*``: what people were last told, and when.

    ``draft`` is the alert a pending subject would open, as of its last bad judgement.
    """

    track: Track = field(default_factory=Track)
    alert: Alert | None = None
    told_rank: int = 0
    told_at: float = 0.0
    told_count: int = 0
    pending_onset: int | None = None
    draft: Alert | None = None
    draft_reason: str = ""


class Episodes:
    """Opens, renews and closes the alerts of one run.

    ``hold`` says how judgements of a (detector, subject) become an alert; ``may_tell`` whether
    anybody is to be told of this run at all.
    """

    def __init__(
        self, run: str, hold: Callable[[str, str], Hold], may_tell: Callable[[], bool]
    ) -> None:
        self.run = run
        self._hold_of = hold
        self._may_tell = may_tell
        self._subjects: dict[Key, _Subject] = {}

    # -- what comes in ------------------------------------------------------------------------

    def take(self, verdict: Verdict, at: float) -> list[Effect]:
        """One judgement."""
        key = (verdict.detector, verdict.subject)
        if verdict.judgement != "bad" and key not in self._subjects:
            return []
        subject = self._subjects.setdefault(key, _Subject())
        if verdict.judgement == "bad":
            if subject.track.state != "pending":
                subject.pending_onset = _onset(verdict)
            if not subject.track.open:
                subject.draft, subject.draft_reason = self._draft(verdict), verdict.reason
        was_open = subject.track.open
        effects = self._advance(key, verdict.judgement, verdict.reason, at, step=verdict.step)
        if was_open and subject.track.open and verdict.judgement == "bad":
            effects += self._go_on(subject, verdict, at)
        return effects

    def tick(self, seconds: float, at: float) -> list[Effect]:
        """Server time has passed: what was pending, or calm, for long enough."""
        return [
            effect
            for key in list(self._subjects)
            for effect in self._advance(key, "tick", self._tick_reason(key), at, seconds=seconds)
        ]

    def _tick_reason(self, key: Key) -> str:
        subject = self._subjects[key]
        return "calm_for_long" if subject.track.open else subject.draft_reason

    def person(self, entry: LogEntry) -> list[Effect]:
        """Somebody acknowledged or closed an alert by hand."""
        for key, subject in self._subjects.items():
            if subject.alert is not None and subject.alert.id == entry.note.get("alert"):
                given: TrackInput = "acknowledge" if entry.kind == "acknowledge" else "resolve"
                reason = "was_fine" if entry.note.get("was_fine") else f"{given}d_by_person"
                return self._advance(key, given, reason, entry.at, note=entry.note)
        return []

    def supersede(self, first_step: int, at: float) -> list[Effect]:
        """What began on the branch that is given up is superseded; older alerts go on."""
        effects: list[Effect] = []
        for key, subject in self._subjects.items():
            alert = subject.alert if subject.track.open else None
            onset = alert.onset_step if alert else subject.pending_onset
            if onset is not None and onset >= first_step:
                effects += self._advance(key, "supersede", "superseded", at)
        return effects

    def close(
        self,
        given: TrackInput,
        reason: str,
        at: float,
        which: Callable[[str, str], bool] = lambda detector, subject: True,
    ) -> list[Effect]:
        """Close all alerts, or those of some (detector, subject)."""
        keys = [key for key in self._subjects if which(*key)]
        return [effect for key in keys for effect in self._advance(key, given, reason, at)]

    # -- alerts -------------------------------------------------------------------------------

    def _advance(
        self, key: Key, given: TrackInput, reason: str, at: float, *,
        step: int | None = None, seconds: float = 0.0, note: dict[str, Any] | None = None,
    ) -> list[Effect]:  # fmt: skip
        subject = self._subjects[key]
        before = subject.track
        subject.track = after = advance(before, given, self._hold(key), seconds)
        waiting = "pending" in (after.state, before.state)
        if after.state == before.state or waiting and not after.open:
            return []
        if after.open and not before.open:
            return [self._open(subject, reason, at, step)] if subject.draft else []
        return self._change(subject, before.state, reason, at, note or {}, step)

    def _hold(self, key: Key) -> Hysteresis:
        hold = self._hold_of(*key)
        return Hysteresis(hold.k, hold.m, hold.calm, hold.for_s, hold.calm_s)

    def _draft(self, verdict: Verdict) -> Alert:
        evidence = verdict.evidence or Evidence(verdict.reason, 1)
        return Alert(
            id="",
            run=self.run,
            detector=verdict.detector,
            subject=verdict.subject,
            episode=0,
            state="firing",
            severity=verdict.severity,
            title=verdict.title,
            attempt=verdict.attempt,
            onset_step=_onset(verdict),
            onset_at=evidence.onset_at if evidence.onset_at is not None else verdict.at,
            opened_step=verdict.step,
            opened_at=0.0,
            last_step=verdict.step,
            evidence=to_plain(evidence),
        )

    def _open(self, subject: _Subject, reason: str, at: float, step: int | None) -> Effect:
        draft, episode = subject.draft, subject.track.episode
        if draft is None:
            raise ValueError("an alert opens with a judgement")
        name = alert_id(self.run, draft.detector, draft.subject, episode)
        alert = replace(draft, id=name, episode=episode, opened_at=at)
        others = [s.alert for s in self._subjects.values() if s.alert is not None and s.alert.open]
        subject.alert = alert = replace(alert, incident=incident_of(alert, others))
        subject.draft, subject.draft_reason = None, ""
        subject.told_rank, subject.told_at, subject.told_count = 0, 0.0, 0
        opened_step = alert.opened_step if step is None else step
        change = AlertChange(alert.id, self.run, "quiet", "firing", reason, at, opened_step)
        return self._tell(subject, Effect(alert, change), "opened", at)

    def _tell(self, subject: _Subject, effect: Effect, moment: Moment, at: float) -> Effect:
        """Information is never pushed, nor what is long past; of the rest we note what was told."""
        rank = RANK[effect.alert.severity]
        if rank == 0 or not self._may_tell():
            return effect
        subject.told_rank, subject.told_at = rank, at
        count = subject.told_count
        subject.told_count += 1
        return replace(effect, tell=moment, telling=count)

    def _go_on(self, subject: _Subject, verdict: Verdict, at: float) -> list[Effect]:
        """The condition goes on: newer evidence, perhaps worse, perhaps time for a reminder."""
        old = subject.alert
        if old is None:
            return []
        worse = RANK[verdict.severity] > RANK[old.severity]
        alert = replace(old, last_step=verdict.step)
        if RANK[verdict.severity] >= RANK[old.severity] and verdict.evidence is not None:
            alert = replace(alert, evidence=to_plain(verdict.evidence), title=verdict.title)
        if not worse:
            subject.alert = alert
            return [self._perhaps_remind(subject, Effect(alert), at)]
        subject.alert = alert = replace(alert, severity=verdict.severity)
        change = AlertChange(
            alert.id, self.run, alert.state, alert.state, "worse", at, verdict.step
        )
        effect = Effect(alert, change)
        if subject.told_rank == 0:
            return [self._tell(subject, effect, "opened", at)]
        return [self._perhaps_remind(subject, effect, at)]

    def _perhaps_remind(self, subject: _Subject, effect: Effect, at: float) -> Effect:
        worse = RANK[effect.alert.severity] > subject.told_rank > 0
        due = at - subject.told_at >= REMIND_AFTER_S
        if worse and due and effect.alert.state == "firing":
            return self._tell(subject, effect, "reminder", at)
        return effect

    def _change(
        self, subject: _Subject, old: str, reason: str, at: float, note: dict[str, Any],
        step: int | None,
    ) -> list[Effect]:  # fmt: skip
        if subject.alert is None:
            return []
        alert, by = subject.alert, note.get("by")
        step = alert.last_step if step is None else step
        if subject.track.state == "acknowledged":
            alert = replace(
                alert, state="acknowledged", acknowledged_at=at, acknowledged_by=by,
                acknowledged_note=str(note.get("note") or ""),
            )  # fmt: skip
        else:
            alert = replace(
                alert, state="resolved", resolved_at=at, resolved_step=step, resolved_reason=reason,
                last_step=max(alert.last_step, step),
            )  # fmt: skip
        subject.alert = alert
        change = AlertChange(alert.id, self.run, old, alert.state, reason, at, step, by)
        told = subject.told_rank > 0 and alert.state == "resolved"
        return [Effect(alert, change, "resolved" if told else None)]

    # -- memory -------------------------------------------------------------------------------

    def snapshot(self) -> list[dict[str, Any]]:
        """All memory as JSON values."""
        return [
            {"key": list(key), **to_plain(asdict(subject))}
            for key, subject in self._subjects.items()
        ]

    def restore(self, state: Iterable[dict[str, Any]]) -> None:
        """Take back what ``snapshot`` gave."""
        self._subjects = {tuple(saved["key"]): _subject(saved) for saved in state}

    def adopt(self, alerts: Iterable[Alert]) -> None:
        """Without a snapshot: at least know the episodes that are stored, and go on with them."""
        for alert in sorted(alerts, key=lambda item: item.episode):
            track = Track(state=alert.state, episode=alert.episode)
            key = (alert.detector, alert.subject)
            self._subjects[key] = _Subject(track, alert, RANK[alert.severity], alert.opened_at, 1)


def _onset(verdict: Verdict) -> int:
    onset = verdict.evidence.onset_step if verdict.evidence else None
    return verdict.step if onset is None else onset


def _subject(saved: dict[str, Any]) -> _Subject:
    rest = {name: value for name, value in saved.items() if name != "key"}
    track = dict(rest.pop("track"))
    track["recent"] = tuple(track["recent"])
    alert, draft = rest.pop("alert"), rest.pop("draft", None)
    return _Subject(
        Track(**track), Alert(**alert) if alert else None, draft=Alert(**draft) if draft else None,
        **rest,
    )  # fmt: skip
