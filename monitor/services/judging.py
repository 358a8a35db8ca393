"""The engine of detection: log entries in, changes of alerts out. No database, no clock.

Everything it knows is in ``snapshot()``; the same entries give the same effects, in whatever pieces
they come. Instants of alerts are those of the entries that caused them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from monitor.detectors import detector_table, load_detector
from monitor.detectors.base import Detector, Evidence, RunFacts, StepFrame, Verdict
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
from monitor.domain.log import LogEntry
from monitor.domain.run import is_past_data
from monitor.domain.series import matches
from monitor.services.frames import FrameAssembler
from trainer_hooks.wire import AttemptStart, RunEnd, RunStart, to_plain

ENGINE_VERSION = 1
"""Raised whenever an old snapshot can no longer be continued."""

REMIND_AFTER_S = 6 * 3600.0
RANK = {"info": 0, "warning": 1, "critical": 2}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Effect:
    """One alert as it now is; what changed, if its state did; whether somebody is to be told."""

    alert: Alert
    change: AlertChange | None = None
    tell: Moment | None = None
    telling: int = 0


@dataclass(slots=True)
class _Subject:
    """Memory of one (detector, subject). ``told_*``: what people were last told, and when."""

    track: Track = field(default_factory=Track)
    alert: Alert | None = None
    told_rank: int = 0
    told_at: float = 0.0
    told_count: int = 0
    pending_onset: int | None = None


class DetectionEngine:
    """Judges one run. Feed it the run's log entries in order of their positions."""

    def __init__(self, run: str, detectors: Mapping[str, type[Detector]] | None = None) -> None:
        self.run = run
        self._classes = dict(detectors) if detectors is not None else load_all()
        self._facts: dict[str, Any] = {}
        self._kind = ""
        self._detectors: dict[str, Detector] = {}
        self._broken: dict[str, str] = {}
        self._subjects: dict[tuple[str, str], _Subject] = {}
        self._doubts: dict[str, str] = {}
        self._readers: dict[str, tuple[str, ...]] = {}
        self._frames = FrameAssembler(lambda key: bool(self._read_by(key)))
        self.ended = False

    # -- what comes in ------------------------------------------------------------------------

    def feed(self, entry: LogEntry) -> list[Effect]:
        """Take in one entry; the alerts it changed, in order."""
        if entry.kind == "batch":
            return self._batch(entry)
        if entry.kind == "tick":
            effects = self._judge(self._frames.tick(), entry.at)
            return effects if self.ended else effects + self._hear(self._frames.passed(entry))
        if entry.kind in ("acknowledge", "resolve"):
            return self._person(entry)
        return []

    def _batch(self, entry: LogEntry) -> list[Effect]:
        effects: list[Effect] = []
        for record in entry.records:
            if isinstance(record, RunStart):
                self._learn(record)
            elif isinstance(record, AttemptStart):
                effects += self._begin(entry, record)
        if not self._frames.attempt:
            self._frames.begin(entry.attempt, 0)
        if entry.attempt != self._frames.attempt:
            return effects  # an abandoned branch: kept as ghosts, judged no more
        effects += self._judge(self._frames.add(entry), entry.at)
        effects += self._hear(self._frames.arrival(entry))
        if any(isinstance(record, RunEnd) for record in entry.records):
            effects += self._judge(self._frames.flush(), entry.at)
            effects += self._close_all("run_end", "run_ended", entry.at)
            self.ended = True
        return effects

    def _learn(self, start: RunStart) -> None:
        """Facts may be completed by a later start; detectors hold the same mapping."""
        self._facts.update(to_plain(start))
        self._kind = self._kind or start.run_kind

    def _begin(self, entry: LogEntry, start: AttemptStart) -> list[Effect]:
        if self._frames.knows(entry.attempt) or start.ordinal < self._frames.ordinal:
            return []
        effects = self._judge(self._frames.flush(before=start.first_step), entry.at)
        if self._frames.attempt:
            effects += self._abandon(start.first_step, entry.at)
        self._frames.begin(entry.attempt, start.ordinal)
        self.ended = False
        return effects

    def _abandon(self, first_step: int, at: float) -> list[Effect]:
        """What began on the branch that is given up is superseded; older alerts go on."""
        effects: list[Effect] = []
        for key, subject in self._subjects.items():
            alert = subject.alert if subject.track.open else None
            onset = alert.onset_step if alert else subject.pending_onset
            if onset is not None and onset >= first_step:
                effects += self._advance(key, "supersede", "superseded", at)
        return effects

    def _close_all(self, given: TrackInput, reason: str, at: float) -> list[Effect]:
        return [e for key in list(self._subjects) for e in self._advance(key, given, reason, at)]

    def _person(self, entry: LogEntry) -> list[Effect]:
        for key, subject in self._subjects.items():
            if subject.alert is not None and subject.alert.id == entry.note.get("alert"):
                given: TrackInput = "acknowledge" if entry.kind == "acknowledge" else "resolve"
                reason = "was_fine" if entry.note.get("was_fine") else f"{given}d_by_person"
                return self._advance(key, given, reason, entry.at, note=entry.note)
        return []

    # -- judging ------------------------------------------------------------------------------

    def _read_by(self, key: str) -> tuple[str, ...]:
        readers = self._readers.get(key)
        if readers is None:
            readers = tuple(name for name, cls in self._classes.items() if matches(key, cls.needs))
            self._readers[key] = readers
        return readers

    def _judge(self, frames: Iterable[StepFrame], at: float) -> list[Effect]:
        effects: list[Effect] = []
        for frame in frames:
            for verdict in self._verdicts(frame):
                effects += self._take(verdict, at)
        return effects

    def _hear(self, heard: StepFrame) -> list[Effect]:
        """Arrivals and ticks, for those who judge silence."""
        effects: list[Effect] = []
        for name, detector in self._ready().items() if heard.attempt else ():
            if detector.hears and name not in self._broken:
                for verdict in self._ask(name, detector, heard):
                    effects += self._take(verdict, heard.t)
        return effects

    def _verdicts(self, frame: StepFrame) -> list[Verdict]:
        shares: dict[str, dict[str, float]] = {}
        for key, value in frame.values.items():
            for name in self._read_by(key):
                shares.setdefault(name, {})[key] = value
        verdicts: list[Verdict] = []
        for name, detector in self._ready().items():
            values = shares.get(name)
            if (values or frame.events) and name not in self._broken:
                verdicts += self._ask(name, detector, replace(frame, values=values or {}))
        return verdicts

    def _ask(self, name: str, detector: Detector, frame: StepFrame) -> list[Verdict]:
        try:
            return detector.update(frame)
        except Exception as error:  # a detector, perhaps a stranger's, must not stop the others
            log.exception("detector %s failed at step %d of %s", name, frame.step, self.run)
            self._broken[name] = type(error).__name__
            return []

    def _ready(self) -> dict[str, Detector]:
        if not self._detectors:
            kind = self._kind or "pretrain"
            facts = RunFacts(self.run, kind, self._facts)
            self._detectors = {
                name: cls(facts) for name, cls in self._classes.items() if kind in cls.kinds
            }
        return self._detectors

    # -- alerts -------------------------------------------------------------------------------

    def _take(self, verdict: Verdict, at: float) -> list[Effect]:
        key = (verdict.detector, verdict.subject)
        self._note_doubt(verdict)
        if verdict.judgement != "bad" and key not in self._subjects:
            return []
        subject = self._subjects.setdefault(key, _Subject())
        if verdict.judgement == "bad" and subject.track.state != "pending":
            subject.pending_onset = _onset(verdict)
        was_open = subject.track.open
        effects = self._advance(key, verdict.judgement, verdict.reason, at, verdict=verdict)
        if was_open and subject.track.open and verdict.judgement == "bad":
            effects += self._go_on(subject, verdict, at)
        return effects

    def _note_doubt(self, verdict: Verdict) -> None:
        """Who cannot tell yet, and what it would take: shown beside what is asleep."""
        if verdict.judgement == "cannot_tell" and verdict.evidence is not None:
            self._doubts[verdict.detector] = verdict.evidence.summary
        else:
            self._doubts.pop(verdict.detector, None)

    def _advance(
        self, key: tuple[str, str], given: TrackInput, reason: str, at: float, *,
        verdict: Verdict | None = None, note: dict[str, Any] | None = None,
    ) -> list[Effect]:  # fmt: skip
        subject = self._subjects[key]
        before = subject.track
        subject.track = after = advance(before, given, self._hold(key[0]))
        if (
            after.state == before.state
            or "pending" in (after.state, before.state)
            and (not after.open)
        ):
            return []
        if after.open and not before.open:
            return [self._open(key, subject, verdict, at)] if verdict else []
        return self._change(subject, before.state, reason, at, note or {}, verdict)

    def _hold(self, detector: str) -> Hysteresis:
        cls = self._classes.get(detector)
        return Hysteresis(cls.hold.k, cls.hold.m, cls.hold.calm) if cls else Hysteresis()

    def _open(self, key: tuple[str, str], subject: _Subject, verdict: Verdict, at: float) -> Effect:
        evidence = verdict.evidence or Evidence(verdict.reason, 1)
        alert = Alert(
            id=alert_id(self.run, *key, subject.track.episode),
            run=self.run,
            detector=verdict.detector,
            subject=verdict.subject,
            episode=subject.track.episode,
            state="firing",
            severity=verdict.severity,
            title=verdict.title,
            attempt=verdict.attempt,
            onset_step=_onset(verdict),
            onset_at=evidence.onset_at if evidence.onset_at is not None else verdict.at,
            opened_step=verdict.step,
            opened_at=at,
            last_step=verdict.step,
            evidence=to_plain(evidence),
        )
        subject.alert = alert
        subject.told_rank, subject.told_at, subject.told_count = 0, 0.0, 0
        change = AlertChange(
            alert.id, self.run, "quiet", "firing", verdict.reason, at, verdict.step
        )
        return self._tell(subject, Effect(alert, change), "opened", at)

    def _tell(self, subject: _Subject, effect: Effect, moment: Moment, at: float) -> Effect:
        """Information is never pushed, nor what is long past; of the rest we note what was told."""
        rank = RANK[effect.alert.severity]
        if rank == 0 or is_past_data(self._facts):
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
        verdict: Verdict | None,
    ) -> list[Effect]:  # fmt: skip
        if subject.alert is None:
            return []
        alert, by = subject.alert, note.get("by")
        step = verdict.step if verdict else alert.last_step
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

    def snapshot(self) -> dict[str, Any]:
        """All memory as JSON values."""
        return {
            "engine": ENGINE_VERSION,
            "facts": self._facts,
            "kind": self._kind,
            "ended": self.ended,
            "frames": self._frames.snapshot(),
            "broken": dict(self._broken),
            "doubts": dict(self._doubts),
            "detectors": {
                name: {"version": detector.version, "state": to_plain(detector.snapshot())}
                for name, detector in self._detectors.items()
            },
            "subjects": [
                {"key": list(key), **to_plain(asdict(subject))}
                for key, subject in self._subjects.items()
            ],
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Take a snapshot back; False if it is of another engine and cannot be continued.

        A detector whose version has changed begins anew, with its own warm-up.
        """
        if state.get("engine") != ENGINE_VERSION:
            return False
        self._facts.update(state["facts"])
        self._kind, self.ended = state["kind"], state["ended"]
        self._frames.restore(state["frames"])
        self._broken = dict(state["broken"])
        self._doubts = dict(state["doubts"])
        for name, detector in self._ready().items():
            saved = state["detectors"].get(name)
            if saved is not None and saved["version"] == detector.version:
                detector.restore(saved["state"])
        self._subjects = {tuple(saved.pop("key")): _subject(saved) for saved in state["subjects"]}
        return True

    def adopt(self, alerts: Iterable[Alert]) -> None:
        """Without a snapshot: at least know the episodes that are stored, and go on with them."""
        for alert in sorted(alerts, key=lambda item: item.episode):
            track = Track(state=alert.state, episode=alert.episode)
            key = (alert.detector, alert.subject)
            self._subjects[key] = _Subject(track, alert, RANK[alert.severity], alert.opened_at, 1)


def load_all() -> dict[str, type[Detector]]:
    """All detectors of the table; one that cannot be imported is left out and said so."""
    classes: dict[str, type[Detector]] = {}
    for name in detector_table():
        try:
            classes[name] = load_detector(name)
        except (ImportError, AttributeError):
            log.exception("detector %s cannot be loaded", name)
    return classes


def _onset(verdict: Verdict) -> int:
    onset = verdict.evidence.onset_step if verdict.evidence else None
    return verdict.step if onset is None else onset


def _subject(saved: dict[str, Any]) -> _Subject:
    track = dict(saved["track"])
    track["recent"] = tuple(track["recent"])
    alert = None if saved["alert"] is None else Alert(**saved["alert"])
    return _Subject(
        Track(**track), alert, saved["told_rank"], saved["told_at"], saved["told_count"],
        saved["pending_onset"],
    )  # fmt: skip
