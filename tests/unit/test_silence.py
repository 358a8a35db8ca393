"""Quiet hours and silences: on the clock of a place, over midnight, on the days it is set."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from monitor.domain.silence import Hours, Silence, parse_hours, silenced_until

HOUR_S = 3600.0
NIGHT = Hours("22:00", "07:00", "Europe/Amsterdam")


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.fixture(params=["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def server_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """The server's own zone, which must play no part."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ("2026-01-10T21:00", "2026-01-11T06:00"),  # winter: UTC+1, nine hours
        ("2026-03-28T21:00", "2026-03-29T05:00"),  # the clocks go forward: eight hours
        ("2026-03-29T20:00", "2026-03-30T05:00"),
        ("2026-07-10T20:00", "2026-07-11T05:00"),  # summer: UTC+2
        ("2026-10-24T20:00", "2026-10-25T06:00"),  # the clocks go back: ten hours
        ("2026-10-25T21:00", "2026-10-26T06:00"),
    ],
)
def test_ten_at_night_to_seven_in_amsterdam(begins: str, ends: str, server_zone: object) -> None:
    first, last = utc(begins), utc(ends)
    assert NIGHT.until(first - 1) is None
    assert NIGHT.until(first) == last
    assert NIGHT.until((first + last) / 2) == last
    assert NIGHT.until(last - 1) == last
    assert NIGHT.until(last) is None


def test_a_day_over_which_the_clocks_are_set_lasts_23_or_25_hours() -> None:
    day = Hours("00:00", "00:00", "Europe/Amsterdam")
    spring, autumn = utc("2026-03-28T23:00"), utc("2026-10-24T22:00")
    assert day.until(spring) == spring + 23 * HOUR_S
    assert day.until(autumn) == autumn + 25 * HOUR_S


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        # 02:30 is left out in spring, and comes twice in autumn: its second counts as the end.
        (Hours("02:30", "04:00", "Europe/Amsterdam"), "2026-03-29T01:30", "2026-03-29T02:00"),
        (Hours("01:00", "02:30", "Europe/Amsterdam"), "2026-10-25T01:29", "2026-10-25T01:30"),
    ],
)
def test_times_the_clocks_skip_or_show_twice(hours: Hours, inside: str, outside: str) -> None:
    assert hours.until(utc(inside)) is not None
    assert hours.until(utc(outside)) is None


def test_on_weekdays_only_the_night_belongs_to_the_day_it_begins_on() -> None:
    friday = Hours("22:00", "07:00", "UTC", days=(4,))
    assert friday.until(utc("2026-11-27T23:00")) == utc("2026-11-28T07:00")
    assert friday.until(utc("2026-11-28T06:59")) == utc("2026-11-28T07:00")
    assert friday.until(utc("2026-11-28T23:00")) is None
    assert friday.until(utc("2026-11-27T06:00")) is None


@pytest.mark.parametrize(
    "text", ["22:00", "22:00-25:00", "10pm-7am", "22:00-07:00 Mars/Base", "a b c"]
)
def test_hours_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="zone|like"):
        parse_hours(text, "UTC")


def test_a_silence_covers_what_it_names() -> None:
    once = Silence("s", detector="stale_data", tag="night", starts_at=100.0, ends_at=200.0)
    assert silenced_until([once], "r", "stale_data", ["night"], 150.0) == 200.0
    assert silenced_until([once], "r", "non_finite", ["night"], 150.0) is None
    assert silenced_until([once], "r", "stale_data", ["day"], 150.0) is None
    assert silenced_until([once], "r", "stale_data", ["night"], 200.0) is None
    other = Silence("t", run="other", starts_at=0.0, ends_at=900.0)
    assert silenced_until([other], "r", "stale_data", [], 150.0) is None


def test_silences_that_follow_upon_one_another_are_one() -> None:
    first = Silence("a", starts_at=100.0, ends_at=200.0)
    second = Silence("b", starts_at=200.0, ends_at=300.0)
    assert silenced_until([first, second], "r", "d", [], 150.0) == 300.0


def test_a_silence_without_an_end_by_the_week_is_given_up_looking_at() -> None:
    always = Silence("a", begin="00:00", end="00:00")
    until = silenced_until([always], "r", "d", [], utc("2026-01-01T12:00"))
    assert until is not None
    assert until > utc("2026-01-20T00:00")
