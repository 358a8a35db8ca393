"""What may be shown of an address that is a secret."""

from __future__ import annotations

import pytest

from monitor.domain.routing import Route, route_of, wants
from monitor.domain.secrets import masked, scrub


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("https://hooks.slack.com/services/T0/B0/abcdefghWXYZ", "https://hooks.slack.com/…WXYZ"),
        ("https://user:password@box.example:8443/x/y", "https://box.example/…/x/y"),
        ("http://[fd00::1]:9093", "http://[fd00::1]/…"),
        ("https://ntfy.example.org", "https://ntfy.example.org/…"),
        ("tgram://123456:AAAAtoken/chat", "…chat"),
        ("whsec_0123456789abcdef", "…cdef"),
        ("short", "…"),
        ("http://[broken", "…"),
    ],
)
def test_no_more_than_scheme_host_and_four_characters(secret: str, shown: str) -> None:
    assert masked(secret) == shown


def test_an_answer_that_repeats_the_address_is_cleaned() -> None:
    secret = "https://hooks.example.org/services/T000/tokentokentoken?key=querysecret"
    said = (
        f"no such hook: {secret}; path /services/T000/tokentokentoken; tokentokentoken querysecret"
    )
    clean = scrub(said, [secret])
    assert "token" not in clean
    assert "querysecret" not in clean
    assert scrub("bad token 123456:AAAAtoken", ["tgram://123456:AAAAtoken/1"]) == "bad token …"
    assert scrub("as it is", ["", "other"]) == "as it is"


@pytest.mark.parametrize(
    ("route", "severity", "tags", "heard"),
    [
        (Route(), "warning", [], True),
        (Route(), "info", [], False),
        (Route("critical"), "warning", [], False),
        (Route("critical"), "critical", [], True),
        (Route("info"), "info", [], True),
        (Route(tags=("night",)), "critical", [], False),
        (Route(tags=("night", "big")), "critical", ["big"], True),
        (Route("critical", ("night",)), "warning", ["night"], False),
        (Route("critical"), "unheard of", [], True),
    ],
)
def test_routes(route: Route, severity: str, tags: list[str], heard: bool) -> None:
    assert wants(route, severity=severity, tags=tags) is heard


def test_a_channel_without_a_route_hears_warnings_of_all_runs() -> None:
    assert route_of({"url": "x"}) == Route("warning", ())
    assert route_of({"route": {"severity": "critical", "tags": ["a"]}}) == Route("critical", ("a",))
    assert route_of({"route": {"severity": "loud"}}) == Route("warning", ())
