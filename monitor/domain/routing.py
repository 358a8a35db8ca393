"""Which channel hears of what: by severity and by the run's tags."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

KEY = "route"
"""Where a channel's config holds its route."""
SEVERITIES = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Route:
    """A channel hears of alerts at least this severe, of runs with one of the tags (none: all)."""

    severity: str = "warning"
    tags: tuple[str, ...] = ()


def route_of(config: Mapping[str, Any]) -> Route:
    """The route in a channel's config; what is not there is as for a new channel."""
    held = config.get(KEY) or {}
    severity = str(held.get("severity") or "warning")
    tags = tuple(str(tag) for tag in held.get("tags") or ())
    return Route(severity if severity in SEVERITIES else "warning", tags)


def wants(route: Route, *, severity: str, tags: Collection[str]) -> bool:
    """Whether it hears of an alert. A severity nobody knows counts as the highest."""
    rank = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    heard = rank >= SEVERITIES.index(route.severity)
    return heard and (not route.tags or any(tag in tags for tag in route.tags))
