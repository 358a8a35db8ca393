"""What a detector is: a pure, replayable judge of one run.

The engine hands a detector one ``StepFrame`` per step, in rising order within an attempt, each
with everything that belongs to the step. The same frames give the same verdicts, however the input
was cut. A detector has no clock: time comes from the frames (and from ticks, for those that ask).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Severity = Literal["info", "warning", "critical"]
Judgement = Literal["bad", "calm", "cannot_tell"]

WARMUP_STEPS = 128
"""No verdict before this many optimizer steps: everything moves then, in every run."""

WARMUP_POINTS = 3
"""... nor before this many points of the judged series."""


@dataclass(frozen=True, slots=True)
class StepEvent:
    """An event, a phase mark, a person's act or a tick, at its step (a tick: the step so far)."""

    kind: str
    name: str
    at: float
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepFrame:
    """All that belongs to one step: ``values`` by series key, non-finite ones as they are."""

    attempt: str
    ordinal: int
    step: int
    t: float
    values: dict[str, float]
    events: tuple[StepEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a detector may know of the run before the first step."""

    run: str
    kind: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause: a sentence, and how many of the signs that would show it do."""

    text: str
    signs_seen: int
    signs_of: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a verdict was given. Numbers are plain floats; the alert page shows all of it.

    ``numbers`` are at most three (name, value, unit, reference text) rows for the alert's text.
    """

    rule: str
    version: int
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    n: int = 0
    onset_step: int | None = None
    onset_at: float | None = None
    series: tuple[str, ...] = ()
    numbers: tuple[tuple[str, float, str, str], ...] = ()
    summary: str = ""
    causes: tuple[Cause, ...] = ()
    first_action: str = ""
    clears: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One judgement of one subject (a group, a rank, or empty for the run) at one step.

    ``reason`` is a fixed word of the detector's own list (never a boolean's worth): a test and a
    log line can name it. ``title`` is the alert's headline without run name and step, such as
    "stale data".
    """

    detector: str
    subject: str
    judgement: Judgement
    severity: Severity
    reason: str
    step: int
    at: float
    attempt: str
    title: str = ""
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """How judgements become an alert: ``k`` bad of the last ``m`` open, ``calm`` in a row end.

    ``for_s`` and ``calm_s``: pending, or calm, for so many seconds of ticks besides.
    """

    k: int = 1
    m: int = 1
    calm: int = 3
    for_s: float = 0.0
    calm_s: float = 0.0


class Detector(ABC):
    """Base of all detectors.

    Class attributes:
        name: as in the table.
        version: raised whenever the same input may give other verdicts.
        needs: series key patterns; frames reach ``update`` with these values only.
        kinds: kinds of run it applies to.
        hold: how judgements become an alert.
        hears: whether it is told of arrivals and ticks too, in frames of their own without values
            whose ``t`` is the server's: for those who judge silence. Others never see them.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    kinds: ClassVar[tuple[str, ...]] = ("pretrain", "continued", "sft", "preference", "other")
    hold: ClassVar[Hold] = Hold()
    hears: ClassVar[bool] = False

    @classmethod
    def hold_of(cls, subject: str) -> Hold:
        """How judgements of one subject become an alert."""
        return cls.hold

    @abstractmethod
    def __init__(self, facts: RunFacts, params: Any = None) -> None:
        """Start without any memory; ``params`` is the detector's own frozen ``Params``."""

    @abstractmethod
    def update(self, frame: StepFrame) -> list[Verdict]:
        """Look at one step; say something only about what this step changed."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """All memory as JSON values, so that ``restore`` continues as if nothing had happened."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Take back what ``snapshot`` gave; the engine refuses a state of another ``version``."""
