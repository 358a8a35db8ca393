"""Days in a run's zone: each has one slot, however many hours or samplings it has."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from monitor.services.views import DayView, SamplingView

MOST_DAYS = 400
"""Days shown with their gaps; of a longer run the last ones."""


def day_of(at: float, zone: str) -> str:
    """The date of an instant in a zone, as YYYY-MM-DD; UTC where the zone is not known.

    Empty for an instant no calendar has.
    """
    try:
        return datetime.fromtimestamp(at, _place(zone)).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _place(zone: str) -> tzinfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def days_of(known: list[SamplingView]) -> list[DayView]:
    """All days from the first sampling to the last, those without any as gaps."""
    by_day: dict[str, list[str]] = {}
    for one in known:
        if one.day:
            by_day.setdefault(one.day, []).append(one.id)
    return [
        DayView(day, by_day.get(day, []), by_day[day][-1] if day in by_day else None)
        for day in _all_days(sorted(by_day))
    ]


def _all_days(days: list[str]) -> list[str]:
    if not days:
        return []
    last = date.fromisoformat(days[-1])
    count = (last - date.fromisoformat(days[0])).days + 1
    kept = min(count, MOST_DAYS)
    return [(last - timedelta(days=kept - 1 - i)).isoformat() for i in range(kept)]


def day_before(
    known: list[SamplingView], right: SamplingView | None
) -> tuple[SamplingView | None, str]:
    """What a sampling is compared with: that of the day before, else of the nearest earlier day
    (said in words), else the one before it on the same day.
    """
    if right is None:
        return None, ""
    earlier = [one for one in known if one.day and one.day < right.day]
    if not earlier:
        same = [one for one in known if (one.at, one.id) < (right.at, right.id)]
        return (same[-1] if same else None), ""
    found = earlier[-1]
    wanted = (date.fromisoformat(right.day) - timedelta(days=1)).isoformat()
    if found.day == wanted:
        return found, ""
    return found, f"no answers on {wanted}: compared with {found.day}, the nearest day before"
