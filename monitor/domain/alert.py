"""An alert and its life: quiet, pending, firing, acknowledged, resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

AlertState = Literal["firing", "acknowledged", "resolved"]
Moment = Literal["opened", "acknowledged", "reminder", "resolved", "digest"]
"""What a message tells of."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One episode of one subject of one detector in one run, from its opening on.

    ``onset_*`` is when it began, ``opened_*`` when we told. ``opened_at`` and the other ``*_at``
    that belong to people or the server are server instants; ``onset_at`` is the run's own clock.
    ``evidence`` is ``detectors.base.Evidence`` as plain JSON.
    """

    id: str
    run: str
    detector: str
    subject: str
    episode: int
    state: AlertState
    severity: str
    title: str
    attempt: str
    onset_step: int
    onset_at: float
    opened_step: int
    opened_at: float
    last_step: int
    evidence: dict[str, Any] = field(default_factory=dict)
    acknowledged_at: float | None = None
    acknowledged_by: str | None = None
    acknowledged_note: str = ""
    resolved_step: int | None = None
    resolved_at: float | None = None
    resolved_reason: str | None = None
    incident: str = ""
    """What one cause did to the run: the id of the incident's first alert (empty: this one's)."""

    @property
    def open(self) -> bool:
        return self.state != "resolved"


@dataclass(frozen=True, slots=True)
class AlertChange:
    """A change of an alert's state as a row: from what, to what, why, when (server instant)."""

    alert: str
    run: str
    old: str
    new: str
    reason: str
    at: float
    step: int | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class FineSpan:
    """Steps of a run in which a rule fired and a person said that nothing was wrong."""

    detector: str
    subject: str
    first_step: int
    last_step: int
    alert: str

    def holds(self, alert: Alert) -> bool:
        """Whether an alert, perhaps of a backtest, is one of the same rule in these steps."""
        same = (alert.detector, alert.subject) == (self.detector, self.subject)
        return same and self.first_step <= alert.opened_step <= self.last_step


def fine_spans(alerts: Iterable[Alert]) -> list[FineSpan]:
    """The spans of alerts that were closed as fine, by step."""
    spans = [
        FineSpan(
            one.detector, one.subject, one.onset_step, one.resolved_step or one.last_step, one.id
        )
        for one in alerts
        if one.resolved_reason == "was_fine"
    ]
    return sorted(spans, key=lambda span: (span.first_step, span.detector))


# ---- how an alert lives: the transition table, as data -------------------------------------

TrackState = Literal["quiet", "pending", "firing", "acknowledged", "resolved"]
TrackInput = Literal[
    "bad", "calm", "cannot_tell", "tick", "acknowledge", "resolve", "supersede", "run_end"
]


@dataclass(frozen=True, slots=True)
class Cell:
    """Where an input leads. ``full``: where it leads once its count is reached.

    The count of ``bad`` is k of the last m judgements, and pending for so long where the rule asks
    for a time; of ``calm``, so many in a row, and for so long; a pending subject is quiet again
    when no bad judgement is left among its last m. ``tick``: server time has passed.
    """

    to: TrackState
    full: TrackState | None = None


TRANSITIONS: dict[tuple[TrackState, TrackInput], Cell] = {
    ("quiet", "bad"): Cell("pending", full="firing"),
    ("quiet", "calm"): Cell("quiet"),
    ("quiet", "cannot_tell"): Cell("quiet"),
    ("quiet", "tick"): Cell("quiet"),
    ("quiet", "acknowledge"): Cell("quiet"),
    ("quiet", "resolve"): Cell("quiet"),
    ("quiet", "supersede"): Cell("quiet"),
    ("quiet", "run_end"): Cell("quiet"),
    ("pending", "bad"): Cell("pending", full="firing"),
    ("pending", "calm"): Cell("pending", full="quiet"),
    ("pending", "cannot_tell"): Cell("pending"),
    ("pending", "tick"): Cell("pending", full="firing"),
    ("pending", "acknowledge"): Cell("pending"),
    ("pending", "resolve"): Cell("quiet"),
    ("pending", "supersede"): Cell("quiet"),
    ("pending", "run_end"): Cell("quiet"),
    ("firing", "bad"): Cell("firing"),
    ("firing", "calm"): Cell("firing", full="resolved"),
    ("firing", "cannot_tell"): Cell("firing"),
    ("firing", "tick"): Cell("firing", full="resolved"),
    ("firing", "acknowledge"): Cell("acknowledged"),
    ("firing", "resolve"): Cell("resolved"),
    ("firing", "supersede"): Cell("resolved"),
    ("firing", "run_end"): Cell("resolved"),
    ("acknowledged", "bad"): Cell("acknowledged"),
    ("acknowledged", "calm"): Cell("acknowledged", full="resolved"),
    ("acknowledged", "cannot_tell"): Cell("acknowledged"),
    ("acknowledged", "tick"): Cell("acknowledged", full="resolved"),
    ("acknowledged", "acknowledge"): Cell("acknowledged"),
    ("acknowledged", "resolve"): Cell("resolved"),
    ("acknowledged", "supersede"): Cell("resolved"),
    ("acknowledged", "run_end"): Cell("resolved"),
    ("resolved", "bad"): Cell("pending", full="firing"),
    ("resolved", "calm"): Cell("resolved"),
    ("resolved", "cannot_tell"): Cell("resolved"),
    ("resolved", "tick"): Cell("resolved"),
    ("resolved", "acknowledge"): Cell("resolved"),
    ("resolved", "resolve"): Cell("resolved"),
    ("resolved", "supersede"): Cell("resolved"),
    ("resolved", "run_end"): Cell("resolved"),
}

OPEN_STATES: frozenset[TrackState] = frozenset({"firing", "acknowledged"})


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """``k`` bad judgements of the last ``m`` open an alert, ``calm`` in a row close it.

    ``for_s``: it must besides have been pending for so long, ``calm_s``: calm for so long. Both in
    seconds of ticks, which stand still while the server is down.
    """

    k: int = 1
    m: int = 1
    calm: int = 3
    for_s: float = 0.0
    calm_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Track:
    """The memory of one (run, detector, subject): state, episode, and the counts behind it.

    ``recent`` holds the last m judgements (True: bad). After a person resolved an alert whose
    condition goes on, ``muted`` holds until the condition has once been calm. ``waited_s``: ticks
    since it became pending, or, of an open alert, since it became calm.
    """

    state: TrackState = "quiet"
    episode: int = 0
    recent: tuple[bool, ...] = ()
    calm_in_a_row: int = 0
    muted: bool = False
    waited_s: float = 0.0

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES


def advance(track: Track, given: TrackInput, hold: Hysteresis, seconds: float = 0.0) -> Track:
    """The track after an input. A new episode begins where an alert starts to fire.

    ``seconds``: how much time a ``tick`` stands for.
    """
    counted = _count(track, given, hold, seconds)
    if counted.muted and given == "bad":
        return counted
    cell = TRANSITIONS[track.state, given]
    state = cell.full if cell.full is not None and _full(counted, given, hold) else cell.to
    opened = state == "firing" and not track.open
    by_person = given == "resolve" and track.open
    began_to_wait = state != track.state
    return Track(
        state=state,
        episode=track.episode + 1 if opened else track.episode,
        recent=() if state in ("quiet", "resolved") else counted.recent,
        calm_in_a_row=0 if opened or state == "resolved" and track.open else counted.calm_in_a_row,
        muted=by_person or counted.muted,
        waited_s=0.0 if began_to_wait else counted.waited_s,
    )


def _count(track: Track, given: TrackInput, hold: Hysteresis, seconds: float) -> Track:
    if given == "tick":
        waits = track.state == "pending" or track.open and track.calm_in_a_row > 0
        return replace(track, waited_s=track.waited_s + seconds) if waits else track
    if given not in ("bad", "calm"):
        return track
    bad = given == "bad"
    calm = 0 if bad else track.calm_in_a_row + 1
    muted = track.muted and calm < hold.calm
    recent = (*track.recent, bad)[-hold.m :]
    waited_s = 0.0 if bad and track.open else track.waited_s
    return Track(track.state, track.episode, () if muted else recent, calm, muted, waited_s)


def _full(track: Track, given: TrackInput, hold: Hysteresis) -> bool:
    if track.open:
        return track.calm_in_a_row >= hold.calm and track.waited_s >= hold.calm_s
    if given == "calm":
        return not any(track.recent)
    return sum(track.recent) >= hold.k and track.waited_s >= hold.for_s
