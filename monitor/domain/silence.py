"""Silences and quiet hours: spans in which nothing is told, on the clock of a place. Pure.

A span is once (two instants) or on days of the week (two times of day, over midnight where the end
is not after the beginning). Times of day are those of an IANA zone, so that the day the clocks go
forward has an hour less and the day they go back an hour more; the server's own zone plays no part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MOST_LINKS = 64
"""Silences that follow one upon the other are one; more than so many are not looked at."""

_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@dataclass(frozen=True, slots=True)
class Hours:
    """From ``begin`` to ``end`` (HH:MM) on ``days`` (0 Monday .. 6 Sunday; none: all) in ``zone``.

    A span over midnight belongs to the day it begins on; ``begin`` = ``end`` is a whole day.
    """

    begin: str
    end: str
    zone: str
    days: tuple[int, ...] = ()

    def until(self, now: float) -> float | None:
        """When the span that holds at this instant ends; None: none does."""
        place = zone_of(self.zone)
        today = datetime.fromtimestamp(now, place).date()
        for day in (today - timedelta(days=1), today):
            if self.days and day.weekday() not in self.days:
                continue
            last = day if self.end > self.begin else day + timedelta(days=1)
            begins, ends = _first(day, self.begin, place), _last(last, self.end, place)
            if begins <= now < ends:
                return ends
        return None


@dataclass(frozen=True, slots=True)
class Silence:
    """What is not told: alerts of this run, detector and tag (empty: any), once or by the week.

    Once: ``starts_at`` and ``ends_at`` (seconds UTC). By the week: ``begin``, ``end`` and ``days``.
    """

    id: str
    run: str = ""
    detector: str = ""
    tag: str = ""
    zone: str = "UTC"
    starts_at: float | None = None
    ends_at: float | None = None
    begin: str = ""
    end: str = ""
    days: tuple[int, ...] = ()
    comment: str = ""
    by: str = ""
    created_at: float = 0.0

    def covers(self, run: str, detector: str, tags: Sequence[str]) -> bool:
        return (
            self.run in ("", run)
            and self.detector in ("", detector)
            and (not self.tag or self.tag in tags)
        )

    def until(self, now: float) -> float | None:
        """When it ends, if it holds at this instant."""
        if self.begin:
            return Hours(self.begin, self.end, self.zone, self.days).until(now)
        if self.starts_at is None or self.ends_at is None:
            return None
        return self.ends_at if self.starts_at <= now < self.ends_at else None


def silenced_until(
    silences: Iterable[Silence], run: str, detector: str, tags: Sequence[str], now: float
) -> float | None:
    """When the last of the silences that follow upon one another ends; None: none holds now."""
    fitting = [one for one in silences if one.covers(run, detector, tags)]
    found, at = None, now
    for _ in range(MOST_LINKS):
        ends = [end for one in fitting if (end := one.until(at)) is not None]
        if not ends:
            break
        found = at = max(ends)
    return found


def parse_hours(text: str, zone: str) -> Hours | None:
    """``22:00-07:00 [Zone/Name]`` as hours; without a zone in ``zone``; empty text: None.

    Raises:
        ValueError: it is not like that.

    >>> parse_hours("22:00-07:00", "Europe/Amsterdam")
    Hours(begin='22:00', end='07:00', zone='Europe/Amsterdam', days=())
    """
    words = text.split()
    if not words:
        return None
    begin, _, end = words[0].partition("-")
    if len(words) > 2 or not (is_time_of_day(begin) and is_time_of_day(end)):
        raise ValueError(f"{text!r} is not like 22:00-07:00 Europe/Amsterdam")
    place = words[1] if len(words) == 2 else zone
    if not is_zone(place):
        raise ValueError(f"there is no time zone {place!r}")
    return Hours(begin, end, place)


def is_time_of_day(text: str) -> bool:
    return _TIME_OF_DAY.fullmatch(text) is not None


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def zone_of(name: str) -> ZoneInfo:
    """The zone; one nobody knows is UTC."""
    return ZoneInfo(name) if is_zone(name) else ZoneInfo("UTC")


def instant(local: datetime, zone: str) -> float:
    """An instant (seconds UTC) from a date and time; without an offset those of the zone."""
    return (local if local.tzinfo else local.replace(tzinfo=zone_of(zone))).timestamp()


def local_day(now: float, zone: str) -> date:
    """The date at an instant in a zone."""
    return datetime.fromtimestamp(now, zone_of(zone)).date()


def time_on(day: date, text: str, zone: str) -> float:
    """The first instant of a day at which its clocks show HH:MM (or, if left out, are past it)."""
    return _first(day, text, zone_of(zone))


def _first(day: date, text: str, place: ZoneInfo) -> float:
    return datetime.combine(day, time.fromisoformat(text), place).timestamp()


def _last(day: date, text: str, place: ZoneInfo) -> float:
    """Where the clocks show a time twice, its second; one left out counts as if it were there."""
    both = (
        datetime.combine(day, time.fromisoformat(text), place).replace(fold=fold) for fold in (0, 1)
    )
    return max(one.astimezone(UTC).timestamp() for one in both)
