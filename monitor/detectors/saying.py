"""How verdicts are put: the two forms that most detectors need."""

from __future__ import annotations

import math

from monitor.detectors.base import Detector, Evidence, Judgement, Severity, StepFrame, Verdict


def said(
    detector: Detector, frame: StepFrame, judgement: Judgement, severity: Severity, reason: str, *,
    subject: str = "", title: str = "", evidence: Evidence | None = None,
) -> Verdict:  # fmt: skip
    """A verdict on this step; without a title of its own it has the detector's."""
    return Verdict(
        detector.name, subject, judgement, severity, reason, frame.step, frame.t, frame.attempt,
        title or detector.title, evidence,
    )  # fmt: skip


def unsure(detector: Detector, frame: StepFrame, missing: str, subject: str = "") -> Verdict:
    """It cannot tell, and what it would take to."""
    evidence = Evidence("cannot_tell", detector.version, summary=missing)
    return said(
        detector, frame, "cannot_tell", "info", "cannot_tell", subject=subject, evidence=evidence
    )  # fmt: skip


def finite(frame: StepFrame, key: str) -> float | None:
    """The frame's value of a series; None where it has none, or none that is a number."""
    value = frame.values.get(key)
    return value if value is not None and math.isfinite(value) else None


def by_group(frame: StepFrame, name: str) -> dict[str, float]:
    """The finite values of the series ``name/<group>``, by group."""
    head = f"{name}/"
    return {
        key[len(head) :]: value
        for key, value in frame.values.items()
        if key.startswith(head) and math.isfinite(value)
    }
