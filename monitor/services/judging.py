"""The engine of detection: log entries in, changes of alerts out. No database, no clock.

Everything it knows is in ``snapshot()``; the same entries give the same effects, in whatever pieces
they come. Instants of alerts are those of the entries that caused them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from monitor.detectors import detector_table, load_detector
from monitor.detectors.base import Detector, Hold, RunFacts, StepFrame, Verdict
from monitor.detectors.tuned import WrongParameter, tuned
from monitor.detectors.user_rule import USER_RULE, compile_rules
from monitor.domain.alert import Alert
from monitor.domain.log import LogEntry
from monitor.domain.rule import rule_from
from monitor.domain.run import is_past_data
from monitor.domain.series import matches
from monitor.services.episodes import REMIND_AFTER_S, Effect, Episodes
from monitor.services.frames import FrameAssembler
from trainer_hooks.wire import AttemptStart, RunEnd, RunStart, to_plain

__all__ = ["REMIND_AFTER_S", "DetectionEngine", "Effect", "load_all"]

TICK_S = 15.0
"""What a tick that does not say so stands for."""

ENGINE_VERSION = 1
"""Raised whenever an old snapshot can no longer be continued."""

MOST_PLANS = 256
"""So many sets of keys a step may bring are remembered."""

_Plan = tuple[list[tuple[str, ...]], list[tuple[str, int]]]
"""The shares of a step's keys, and by detector which of them it gets."""

log = logging.getLogger(__name__)


class DetectionEngine:
    """Judges one run. Feed it the run's log entries in order of their positions."""

    def __init__(self, run: str, detectors: Mapping[str, type[Detector]] | None = None) -> None:
        self.run = run
        self._classes = dict(detectors) if detectors is not None else load_all()
        self._facts: dict[str, Any] = {}
        self._kind = ""
        self._detectors: dict[str, Detector] = {}
        self._broken: dict[str, str] = {}
        self._rules: list[dict[str, Any]] = []
        self._untuned = dict(self._classes)
        self._params: dict[str, dict[str, str]] = {}
        self._episodes = Episodes(run, self._hold, lambda: not is_past_data(self._facts))
        self._doubts: dict[str, str] = {}
        self._readers: dict[str, tuple[str, ...]] = {}
        self._plans: dict[tuple[tuple[str, ...], bool], _Plan] = {}
        self._frames = FrameAssembler(lambda key: bool(self._read_by(key)))
        self.ended = False

    # -- what comes in ------------------------------------------------------------------------

    def feed(self, entry: LogEntry) -> list[Effect]:
        """Take in one entry; the alerts it changed, in order."""
        if entry.kind == "batch":
            return self._batch(entry)
        if entry.kind == "tick":
            return self._tick(entry)
        if entry.kind in ("acknowledge", "resolve"):
            return self._episodes.person(entry)
        if entry.kind == "config":
            return self._configure(entry)
        return []

    def _tick(self, entry: LogEntry) -> list[Effect]:
        """Time has passed: for steps that wait, for who judges silence, for what is pending."""
        effects = self._judge(self._frames.tick(), entry.at)
        if not self.ended:
            effects += self._hear(self._frames.passed(entry))
        seconds = float(entry.note.get("interval_s") or TICK_S)
        return effects + self._episodes.tick(seconds, entry.at)

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
            # An abandoned branch: kept as ghosts, judged no more, but for late answers.
            return effects + self._hear(self._frames.answers(entry))
        effects += self._judge(self._frames.add(entry), entry.at)
        effects += self._hear(self._frames.arrival(entry))
        if any(isinstance(record, RunEnd) for record in entry.records):
            effects += self._judge(self._frames.flush(), entry.at)
            effects += self._episodes.close("run_end", "run_ended", entry.at)
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
            effects += self._episodes.supersede(start.first_step, entry.at)
        self._frames.begin(entry.attempt, start.ordinal, start.first_step)
        self.ended = False
        return effects

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
        for name, detector in self._ready().items() if heard.attempt and heard.events else ():
            if detector.hears and name not in self._broken:
                for verdict in self._ask(name, detector, heard):
                    effects += self._take(verdict, heard.t)
        return effects

    def _plan(self, keys: tuple[str, ...], all_hear: bool) -> _Plan:
        """Who is asked at a step that brings these keys, and what each gets of them.

        Most steps of a run bring the same keys, so that this is asked once and remembered.
        """
        plan = self._plans.get((keys, all_hear))
        if plan is None:
            shares: dict[str, tuple[str, ...]] = {}
            for key in keys:
                for name in self._read_by(key):
                    shares[name] = (*shares.get(name, ()), key)
            asked = [name for name in self._ready() if all_hear or name in shares]
            parts = list(dict.fromkeys(shares.get(name, ()) for name in asked))
            plan = parts, [(name, parts.index(shares.get(name, ()))) for name in asked]
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[keys, all_hear] = plan
        return plan

    def _verdicts(self, frame: StepFrame) -> list[Verdict]:
        values = frame.values
        shares, asked = self._plan(tuple(values), bool(frame.events))
        parts = [
            StepFrame(
                frame.attempt, frame.ordinal, frame.step, frame.t,
                {key: values[key] for key in keys}, frame.events,
            )
            for keys in shares
        ]  # fmt: skip
        verdicts: list[Verdict] = []
        detectors, broken = self._ready(), self._broken
        for name, part in asked:
            if name not in broken:
                verdicts += self._ask(name, detectors[name], parts[part])
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
            facts = self._run_facts()
            self._detectors = {
                name: cls(facts) for name, cls in self._classes.items() if facts.kind in cls.kinds
            }
        return self._detectors

    def _run_facts(self) -> RunFacts:
        return RunFacts(self.run, self._kind or "pretrain", self._facts)

    def _take(self, verdict: Verdict, at: float) -> list[Effect]:
        self._note_doubt(verdict)
        return self._episodes.take(verdict, at)

    def _note_doubt(self, verdict: Verdict) -> None:
        """Who cannot tell yet, and what it would take: shown beside what is asleep."""
        key = f"{verdict.detector} {verdict.subject}".strip()
        if verdict.judgement == "cannot_tell" and verdict.evidence is not None:
            self._doubts[key] = verdict.evidence.summary
        else:
            self._doubts.pop(key, None)
            self._doubts.pop(verdict.detector, None)

    def _hold(self, detector: str, subject: str) -> Hold:
        cls = self._classes.get(detector)
        return cls.hold_of(subject) if cls is not None else Hold()

    # -- what people set ----------------------------------------------------------------------

    def _configure(self, entry: LogEntry) -> list[Effect]:
        rules, params = entry.note.get("rules"), entry.note.get("params")
        if isinstance(params, dict):
            self.set_params(params)
        return self.set_rules(rules, entry.at) if isinstance(rules, list) else []

    def set_rules(self, rules: Sequence[dict[str, Any]], at: float = 0.0) -> list[Effect]:
        """Judge by these rules of people's from here on; what only an old one opened is closed."""
        if rules == self._rules:
            return []
        self._rules = list(rules)
        cls = compile_rules([rule_from(plain) for plain in rules])
        self._readers.clear()
        self._plans.clear()
        self._frames.ask_again()
        self._exchange(USER_RULE, cls)

        def is_orphan(name: str, subject: str) -> bool:
            return name == USER_RULE and not cls.knows(subject)

        return self._episodes.close("resolve", "rule_changed", at, is_orphan)

    def set_params(self, params: Mapping[str, Mapping[str, str]]) -> None:
        """Judge with these parameters of detectors from here on; what is not named is as shipped.

        Each keeps what it remembers. One that failed before begins anew.
        """
        wanted = {name: dict(own) for name, own in params.items() if own}
        for name in wanted.keys() | self._params.keys():
            if name in self._untuned and wanted.get(name) != self._params.get(name):
                self._exchange(name, known_changes(self._untuned[name], wanted.get(name, {})))
        self._params = wanted

    def _exchange(self, name: str, cls: type[Detector]) -> None:
        """Put another class in a detector's place; it goes on with the other's memory."""
        self._classes[name] = cls
        was_broken = self._broken.pop(name, None) is not None
        if not self._detectors or (name not in self._detectors and name != USER_RULE):
            return
        before = self._detectors.get(name)
        self._detectors[name] = cls(self._run_facts())
        if before is not None and not was_broken:
            self._remember(name, to_plain(before.snapshot()))

    def _remember(self, name: str, state: dict[str, Any]) -> None:
        """Give a detector its memory; one it does not fit begins anew, with its own warm-up."""
        try:
            self._detectors[name].restore(state)
        except Exception:  # of another shape: better a new beginning than none
            log.exception("detector %s of %s begins anew", name, self.run)
            self._detectors[name] = self._classes[name](self._run_facts())

    @property
    def broken(self) -> dict[str, str]:
        """Detectors that failed and judge no more, with the kind of their error."""
        return dict(self._broken)

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
            "rules": list(self._rules),
            "params": self._params,
            "subjects": self._episodes.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Take a snapshot back; False if it is of another engine and cannot be continued.

        A detector whose version has changed, or whose memory does not fit, begins anew.
        """
        if state.get("engine") != ENGINE_VERSION:
            return False
        self._facts.update(state["facts"])
        self._kind, self.ended = state["kind"], state["ended"]
        self._frames.restore(state["frames"])
        self._doubts = dict(state["doubts"])
        self.set_rules(state.get("rules") or [])
        self.set_params(state.get("params") or {})
        self._broken = dict(state["broken"])
        for name, detector in list(self._ready().items()):
            saved = state["detectors"].get(name)
            if saved is not None and saved["version"] == detector.version:
                self._remember(name, saved["state"])
            else:
                self._broken.pop(name, None)  # what failed was another version
        self._episodes.restore(state["subjects"])
        return True

    def adopt(self, alerts: Iterable[Alert]) -> None:
        """Without a snapshot: at least know the episodes that are stored, and go on with them."""
        self._episodes.adopt(alerts)


def known_changes(cls: type[Detector], changes: Mapping[str, str]) -> type[Detector]:
    """With those of the changes that it understands: they may be of an older program."""
    good = {}
    for name, text in changes.items():
        try:
            tuned(cls, {name: text})
            good[name] = text
        except WrongParameter as error:
            log.warning("a parameter of %s is left as shipped: %s", cls.name, error)
    return tuned(cls, good)


def load_all() -> dict[str, type[Detector]]:
    """All detectors of the table; one that cannot be imported is left out and said so."""
    classes: dict[str, type[Detector]] = {}
    for name in detector_table():
        try:
            classes[name] = load_detector(name)
        except (ImportError, AttributeError):
            log.exception("detector %s cannot be loaded", name)
    return classes
