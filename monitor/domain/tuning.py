"""Parameters of detectors as a person has set them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is judged otherwise than as shipped: values as they are typed, by parameter."""

    detector: str
    params: dict[str, str] = field(default_factory=dict)
    changed_at: float = 0.0
    by: str = ""
