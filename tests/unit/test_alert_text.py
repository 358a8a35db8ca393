"""The words of an alert, and how long a receiver may make us wait."""

from __future__ import annotations

import pytest

from monitor.domain.words import duration_text
from monitor.services.alerting import HEADLINE_CHARS, _headline, local_time, money_text
from monitor.services.delivery import LONGEST_RETRY_AFTER_S, retry_after_s
from tests.storage.test_delivery import an_alert


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0.4 s"),
        (1.0, "1 s"),
        (9.97, "10 s"),
        (36, "36 s"),
        (119.7, "2 min"),
        (1_440, "24 min"),
        (7_800, "2 h 10 min"),
        (108_000, "30 h 00 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [(4.6, "USD", "$4.60"), (1234.5, "EUR", "€1,234.50"), (7.0, "CHF", "7.00 CHF")],
)
def test_money(amount: float, currency: str, text: str) -> None:
    assert money_text(amount, currency) == text


@pytest.mark.parametrize(
    ("at", "zone", "text"),
    [
        (1774745940.0, "Europe/Amsterdam", "01:59"),  # the minute before the clocks go forward
        (1774746000.0, "Europe/Amsterdam", "03:00"),
        (1774746000.0, "UTC", "01:00"),
        (1774746000.0, "Nowhere/At_All", "01:00"),
        (1774746000.0, "../etc/passwd", "01:00"),
    ],
)
def test_times_are_those_of_the_run(at: float, zone: str, text: str) -> None:
    assert local_time(at, zone) == text


def test_a_headline_stands_alone_and_is_cut_at_the_name() -> None:
    line = _headline(an_alert(), "n" * 5000, "UTC", "opened")
    assert len(line) == HEADLINE_CHARS
    assert line.endswith("…: stale data since step 41,203 (03:12) - critical")


def test_a_name_with_line_breaks_stays_one_line() -> None:
    assert "\n" not in _headline(an_alert(), "one\r\ntwo", "UTC", "opened")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("38", 38.0),
        (" 0.5 ", 0.5),
        ("-3", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("99999999", LONGEST_RETRY_AFTER_S),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after_s(text, now=10.0) == seconds
