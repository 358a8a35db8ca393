"""What every format must hold: limits, harmless names, no secret in what is stored."""

from __future__ import annotations

import email
import email.policy
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from monitor.domain.alert import Moment
from monitor.formats import FORMATS, load_format
from monitor.formats.base import AlertText, Message
from monitor.formats.text import cut, fit, one_line
from tests.golden.format_story import CONFIG, SECRETS

HOSTILE = (
    '<!channel> <@U1> @everyone *b* _i_ `c` [x](http://evil.test) & <img src=x> "q" \\ \u202e{{7}}'
)


def a_message(
    headline: str = "run: stale data since step 1 (03:12) - critical",
    lines: tuple[str, ...] = ("One.", "Two."),
    *,
    link: str = "https://watch.example.org/alerts/a1",
    moment: Moment = "opened",
    **alert: Any,
) -> Message:
    held = {"id": "a1", "detector": "stale_data", "severity": "critical", "opened_at": 1e9, **alert}
    run = {"id": "r1", "name": headline}
    return Message("msg_1", moment, 1e9, AlertText(headline, lines, link, link), held, run)


def render(name: str, message: Message) -> Any:
    payload = load_format(name).render(message, CONFIG)
    return (
        email.message_from_bytes(payload, policy=email.policy.SMTP)
        if name == "email"
        else json.loads(payload)
    )


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


LONG = a_message("n" * 5000, tuple(f"detail {number}: {'x' * 500}" for number in range(80)))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("moment", ["opened", "acknowledged", "reminder", "resolved"])
def test_no_secret_is_in_what_is_stored(name: str, moment: Moment) -> None:
    """Payloads lie in the database until they are sent, and after."""
    payload = load_format(name).render(a_message(moment=moment), CONFIG)
    assert not [secret for secret in SECRETS.values() if secret.encode() in payload]


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_message_is_the_same_bytes(name: str) -> None:
    made = load_format(name)
    assert made.render(a_message(), CONFIG) == made.render(a_message(), CONFIG)


@pytest.mark.parametrize("name", FORMATS)
def test_a_message_of_no_single_alert_can_be_said(name: str) -> None:
    """A digest, or many alerts in one."""
    text = AlertText("Morning: 3 runs, all healthy", ("run one: fine",))
    bare = Message("msg_digest", "digest", 1e9, text, {}, {})
    payload = load_format(name).render(bare, CONFIG)
    assert b"Morning: 3 runs, all healthy" in payload


@pytest.mark.parametrize("name", FORMATS)
def test_the_form_names_its_fields_once_and_marks_what_is_secret(name: str) -> None:
    made = load_format(name)
    names = [field.name for field in made.fields]
    assert len(names) == len(set(names))
    assert made.label
    assert made.about
    for field in made.fields:
        assert field.secret == (field.name in SECRETS), field.name
        assert not field.choices or field.default in field.choices


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "email"])
def test_a_request_is_made_of_the_form_alone(name: str) -> None:
    made = load_format(name)
    payload = made.render(a_message(), CONFIG)
    request = made.request("msg_1", payload, CONFIG, at=1e9)
    assert request.url.startswith("https://")


def test_slack_keeps_to_its_limits_and_says_how_much_it_left_out() -> None:
    told = render("slack", LONG)
    blocks = told["blocks"]
    assert len(blocks) <= 50
    assert len(blocks[0]["text"]["text"]) <= 150
    sections = [block["text"]["text"] for block in blocks if block["type"] == "section"]
    assert max(map(len, sections)) <= 3000
    shown = sum(text.count("detail ") for text in sections)
    assert sections[-1].endswith(f"… ({80 - shown} more)")
    assert shown > 15


def test_slack_counts_what_escaping_adds() -> None:
    told = render("slack", a_message("&" * 400, ("<" * 9000,)))
    assert len(told["blocks"][0]["text"]["text"]) <= 150
    assert all(len(text) <= 3000 for text in strings(told))
    assert not re.search(r"&(?!amp;|lt;|gt;)", "".join(strings(told["blocks"][:2])))


@pytest.mark.parametrize("link", ["", "monitor:8000/alerts/a1", "javascript:alert(1)", "//x/y"])
def test_slack_has_no_button_without_a_whole_address(link: str) -> None:
    told = render("slack", a_message(link=link))
    assert [block["type"] for block in told["blocks"]] == ["header", "section"]


def test_slack_names_are_text() -> None:
    told = render("slack", a_message(HOSTILE, (HOSTILE,)))
    said = "".join(strings(told["blocks"][:2]))
    assert "<" not in said
    assert "&lt;!channel&gt;" in said
    assert html.unescape(told["text"]).startswith("<!channel>")


def test_slack_in_plain_text_is_short_and_whole() -> None:
    made = load_format("slack")
    plain = json.loads(made.fallback(made.render(LONG, CONFIG)) or b"")
    assert set(plain) == {"text"}
    assert len(plain["text"]) <= 3000
    assert plain["text"].startswith("nnn")


def test_discord_keeps_to_its_limits_and_mentions_nobody() -> None:
    told = render("discord", LONG)
    (embed,) = told["embeds"]
    assert len(told["content"]) <= 2000
    assert len(embed["description"]) <= 4096
    assert sum(map(len, strings(embed))) <= 6000
    assert "more)" in embed["description"]
    told = render("discord", a_message(HOSTILE, ("# not a heading", HOSTILE)))
    assert told["allowed_mentions"] == {"parse": []}
    assert "\\<@U1>" in told["content"]
    assert "\\*b\\* \\_i\\_ \\`c\\` \\[x](http" in told["content"]
    assert told["embeds"][0]["description"].startswith("\\# not a heading")


def test_teams_stays_below_28_kb_however_it_is_counted() -> None:
    for message in (LONG, a_message("é" * 500, ('"\\' * 9000, "漢" * 20_000))):
        payload = load_format("teams").render(message, CONFIG)
        assert len(payload) <= 28 * 1024
        assert len(payload.decode().encode("utf-16-le")) <= 28 * 1024


def test_teams_knows_no_markdown_in_runs() -> None:
    card = render("teams", a_message(HOSTILE, (HOSTILE,)))["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert all(run["type"] == "TextRun" for block in card["body"] for run in block["inlines"])


def test_ntfy_stays_a_message_and_never_becomes_a_file() -> None:
    told = render("ntfy", a_message("漢" * 500, ("漢" * 3000, "two", "three")))
    assert len(told["message"].encode()) <= 4096
    assert len(told["title"].encode()) <= 250
    made = load_format("ntfy")
    request = made.request("m", made.render(a_message(), CONFIG), CONFIG, at=0.0)
    assert request.url == "https://ntfy.sh/"
    assert json.loads(request.body)["topic"] == SECRETS["topic"]


@pytest.mark.parametrize(
    ("severity", "moment", "priority"),
    [("critical", "opened", 5), ("warning", "opened", 4), ("critical", "resolved", 3)],
)
def test_ntfy_rings_loudest_for_what_is_critical(
    severity: str, moment: Moment, priority: int
) -> None:
    assert render("ntfy", a_message(severity=severity, moment=moment))["priority"] == priority


def test_pagerduty_follows_one_incident() -> None:
    told = [
        render("pagerduty", a_message(moment=moment))
        for moment in ("opened", "reminder", "acknowledged", "resolved")
    ]
    assert [one["event_action"] for one in told] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert {one["dedup_key"] for one in told} == {"a1"}


def test_pagerduty_leaves_the_evidence_out_first() -> None:
    made = load_format("pagerduty")
    big = a_message("s" * 5000, evidence={"around": ["x" * 1000] * 600})
    event = json.loads(made.request("m", made.render(big, CONFIG), CONFIG, at=0.0).body)
    assert len(json.dumps(event)) < 100_000
    assert event["payload"]["custom_details"]["evidence"] == {}
    assert len(event["payload"]["summary"]) == 1024
    assert event["routing_key"] == SECRETS["routing_key"]


def test_alertmanager_has_the_same_labels_from_the_opening_to_the_end() -> None:
    for name in ("alertmanager", "alertmanager_push"):
        opened, over = (
            render(name, a_message(moment=moment, resolved_at=999.0))
            for moment in ("opened", "resolved")
        )
        first, last = (
            (one["alerts"] if isinstance(one, dict) else one)[0] for one in (opened, over)
        )
        assert first["labels"] == last["labels"]
        assert last["endsAt"] >= last["startsAt"], "a clock that went back"


def test_alertmanager_lists_the_alerts_of_an_outage() -> None:
    first = a_message("3 runs: run silent - critical")
    others = tuple(
        {"alert": {**first.alert, "id": f"a{number}"}, "run": {"id": f"r{number}", "name": "x"}}
        for number in range(2, 4)
    )
    told = render("alertmanager", replace(first, others=others))
    assert [one["labels"]["run"] for one in told["alerts"]] == ["r1", "r2", "r3"]
    assert told["groupLabels"] == {"alertname": "stale_data"}
    assert "run" not in told["commonLabels"]
    assert len({one["fingerprint"] for one in told["alerts"]}) == 3
    many = render("alertmanager", replace(first, others=others * 100))
    assert (len(many["alerts"]), many["truncatedAlerts"]) == (100, 101)


def test_the_push_says_no_end_while_it_goes_on_and_renews_many_in_one() -> None:
    made = load_format("alertmanager_push")
    messages = [a_message(id=f"a{number}", detector=f"d{number}") for number in range(3)]
    renewed = json.loads(made.renew(messages, CONFIG))
    assert [one["labels"]["alertname"] for one in renewed] == ["d0", "d1", "d2"]
    assert not any("endsAt" in one for one in renewed)
    for given in ("http://am:9093", "http://am:9093/", "http://am:9093/api/v2/alerts"):
        request = made.request("m", b"[]", {"url": given}, at=0.0)
        assert request.url == "http://am:9093/api/v2/alerts"


def test_mail_is_plain_text_and_a_name_adds_no_header() -> None:
    mail = render("email", a_message(f"run\r\nBcc: victim@example.org {HOSTILE}", (HOSTILE,)))
    assert mail["Bcc"] is None
    assert "\u202e" not in mail["Subject"]
    assert [part.get_content_type() for part in mail.walk()] == [
        "multipart/mixed",
        "text/plain",
        "text/plain",
    ]


def test_mails_of_one_alert_are_one_thread() -> None:
    mails = [render("email", a_message(moment=moment)) for moment in ("opened", "resolved")]
    assert {mail["References"] for mail in mails} == {"<a1@watchkeeper>"}


def test_a_long_mail_stays_below_64_kb() -> None:
    payload = load_format("email").render(LONG, CONFIG)
    assert len(payload) < 64_000
    assert max(map(len, payload.split(b"\r\n"))) <= 998


@pytest.mark.parametrize("to", ["", "nobody", "a@b, nobody"])
def test_an_address_that_is_none_is_told(to: str) -> None:
    with pytest.raises(ValueError, match=r"address|domain|local"):
        load_format("email").render(a_message(), {**CONFIG, "to": to})


def test_cutting_keeps_the_beginning() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"
    assert fit(["one", "two", "three"], 100) == ["one", "two", "three"]
    assert fit(["one" * 10, "two" * 10, "three" * 10], 60) == ["one" * 10, "… (2 more)"]
    assert fit([], 10) == []
    assert fit(["x" * 100], 20) == ["xxxxxxxxx…"]


def test_one_line_has_no_control_in_it() -> None:
    assert one_line("a\r\nb\x00c\u2028d \u202eevil\u2066 \ud800") == "a b c d evil ?"
