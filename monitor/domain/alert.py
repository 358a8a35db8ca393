"""An alert and its life: quiet, pending, firing, acknowledged, resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

AlertState = Literal["firing", "acknowledged", "resolved"]
Moment = Literal["opened", "acknowledged", "reminder", "resolved"]
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
