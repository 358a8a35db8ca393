"""Detectors with parameters a person chose: first replayed over stored runs, then switched on.

What is switched on is written into the log of every run under way, and at the head of each new one,
where the judge reads it in order with everything else: a replay after a restart judges each step by
the parameters that were in force there.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from monitor.clock import Clock, monotonic_s
from monitor.detectors import detector_table, load_detector
from monitor.detectors.base import Detector
from monitor.detectors.tuned import as_text, default_params, parameters
from monitor.domain.alert import fine_spans
from monitor.domain.tuning import Tuning
from monitor.errors import Conflict, NotFound
from monitor.services.backtest import Judged, changed, judge, stored_entries
from monitor.services.judging import known_changes, load_all
from monitor.services.silencing import plain_rules
from monitor.storage.base import Database, UnitOfWork

NEWEST_RUNS = 20
"""So many runs are replayed where none are named."""
FRAME = ("loss/train", "step_s")
"""Read whatever a detector needs: they say which steps there were."""
LONGEST_S = 20.0
"""After so long no further run is begun; those that are left are named in the answer."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; values as they are typed. ``value``: in force."""

    name: str
    shipped: str
    value: str


@dataclass(frozen=True, slots=True)
class Tunable:
    """A detector and its parameters. ``about``: what they mean. ``hears``: it also judges by the
    server's clock and by arrivals; a replay has the answers, and no clock."""

    name: str
    title: str
    about: str
    hears: bool
    params: tuple[Parameter, ...]
    changed_at: float | None
    by: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One run judged twice: as it is judged now, and with the change."""

    run: str
    name: str
    before: Judged
    after: Judged


@dataclass(frozen=True, slots=True)
class Preview:
    """``left``: runs there was no time for. ``seconds``: what it took."""

    runs: tuple[Compared, ...]
    left: tuple[str, ...]
    seconds: float


class Tuner:
    """Parameters of detectors: what there is, what a change would have done, and the change."""

    def __init__(self, database: Database, clock: Clock, *, longest_s: float = LONGEST_S) -> None:
        self._database = database
        self._clock = clock
        self._longest_s = longest_s
        self._replaying = threading.Lock()

    def detectors(self) -> list[Tunable]:
        """All that have parameters, as in the table."""
        with self._database.read() as uow:
            tunings = uow.tunings.all()
        found = [_tunable(cls, tunings.get(name)) for name, cls in load_all().items()]
        return [one for one in found if one.params]

    def preview(
        self, detector: str, params: Mapping[str, str], runs: Sequence[str] = ()
    ) -> Preview:
        """Judge stored runs (the newest, where none are named) as now and with these parameters.

        Raises:
            NotFound: there is no such detector or run.
            UnknownFilter: it has no such parameter, or the text is no value of it.
            Conflict: somebody else's replay is under way.
        """
        cls = _known(detector)
        after = changed(cls, params)
        with self._database.read() as uow:
            held = uow.tunings.all().get(detector)
            chosen = list(runs) or [run.id for run in _newest(uow)]
        before = known_changes(cls, held.params if held is not None else {})
        if not self._replaying.acquire(blocking=False):
            raise Conflict("Another replay is under way.", hint="Wait for its end.")
        try:
            return self._replay(detector, before, after, chosen)
        finally:
            self._replaying.release()

    def _replay(
        self, detector: str, before: type[Detector], after: type[Detector], runs: list[str]
    ) -> Preview:
        began = monotonic_s()
        done: list[Compared] = []
        for run in runs:
            if done and monotonic_s() - began > self._longest_s:
                break
            done.append(self._compare(detector, before, after, run))
        left = tuple(runs[len(done) :])
        return Preview(tuple(done), left, monotonic_s() - began)

    def _compare(
        self, detector: str, before: type[Detector], after: type[Detector], run: str
    ) -> Compared:
        needs = (*before.needs, *FRAME)
        stored = stored_entries(self._database, run, needs=needs, answers=before.hears)
        entries = list(stored)
        with self._database.read() as uow:
            found, fine = uow.runs.get(run), tuple(fine_spans(uow.alerts.labelled(run)))
        name = found.name if found is not None else run
        judged = [
            replace(judge(run, entries, {detector: cls}), fine=fine) for cls in (before, after)
        ]
        return Compared(run, name, judged[0], judged[1])

    def switch_on(self, detector: str, params: Mapping[str, str], by: str) -> Tunable:
        """Judge by these from here on, in runs under way too. Those not named are as shipped.

        Raises:
            NotFound: there is no such detector.
            UnknownFilter: it has no such parameter, or the text is no value of it.
        """
        cls = _known(detector)
        changed(cls, params)
        now = self._clock()
        made = Tuning(detector, _worth_keeping(cls, params), now, by)

        def work(uow: UnitOfWork) -> None:
            uow.tunings.save(made)
            plain = plain_params(uow)
            for run in uow.runs.live():
                uow.log.append_note(run.id, "config", {"params": plain}, at=now)

        self._database.write(work)
        return _tunable(cls, made if made.params else None)


def note_config(uow: UnitOfWork, run: str, *, at: float) -> None:
    """Write people's rules and parameters into a run's log, where its judge reads them in order.

    For a run that begins: before its first batch. Nothing where nothing is set.
    """
    note = {"rules": plain_rules(uow), "params": plain_params(uow)}
    held = {key: value for key, value in note.items() if value}
    if held:
        uow.log.append_note(run, "config", held, at=at)


def plain_params(uow: UnitOfWork) -> dict[str, dict[str, str]]:
    """All parameters that are not as shipped, as they are written into logs."""
    return {name: dict(tuning.params) for name, tuning in uow.tunings.all().items()}


def _known(detector: str) -> type[Detector]:
    if detector not in detector_table():
        known = ", ".join(detector_table())
        raise NotFound(f"There is no detector {detector!r}.", hint=f"There are: {known}.")
    return load_detector(detector)


def _newest(uow: UnitOfWork) -> list[Any]:
    return uow.runs.find(states=None, text="", limit=NEWEST_RUNS, before=None)


def _worth_keeping(cls: type[Detector], params: Mapping[str, str]) -> dict[str, str]:
    """Without those that say what is shipped anyway."""
    own = parameters(cls)
    kept = {name: text.strip() for name, text in params.items()}
    return {name: text for name, text in kept.items() if text != as_text(own[name])}


def _tunable(cls: type[Detector], tuning: Tuning | None) -> Tunable:
    held = tuning.params if tuning is not None else {}
    params = tuple(
        Parameter(name, as_text(value), held.get(name, as_text(value)))
        for name, value in parameters(cls).items()
    )
    about = inspect.getdoc(type(default_params(cls))) if params else ""
    return Tunable(
        name=cls.name,
        title=cls.title,
        about=(about or "").replace("``", ""),
        hears=cls.hears,
        params=params,
        changed_at=tuning.changed_at if tuning is not None else None,
        by=tuning.by if tuning is not None else "",
    )
