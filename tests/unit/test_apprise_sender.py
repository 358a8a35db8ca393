"""Apprise in its own process: it sends, it is kept inside its bounds, and it says what happened."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from monitor.formats import load_format
from monitor.senders.apprise import AppriseSender
from monitor.services.channels import asleep
from tests.fixtures.require import need

BODY = json.dumps({"title": "a headline", "lines": ["one", "two"], "kind": "warning"}).encode()
MARKER = "marker-of-the-secret"


@pytest.fixture
def receiver() -> Generator[tuple[str, list[bytes], list[int]]]:
    """An address for Apprise's JSON service, what came there, and the answers to give."""
    got: list[bytes] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(answers.pop(0) if answers else 200)
            self.send_header("location", "http://169.254.169.254/latest/")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"json://127.0.0.1:{server.server_port}/{MARKER}", got, answers
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def installed() -> None:
    need(find_spec("apprise") is not None, "Apprise (the notify extra) is not installed")


def test_a_message_arrives(receiver: tuple[str, list[bytes], list[int]]) -> None:
    url, got, _ = receiver
    answer = AppriseSender(["127.0.0.0/8"])(url, BODY, {})
    assert (answer.status, answer.error) == (200, "")
    told = json.loads(got[0])
    assert (told["title"], told["message"], told["type"]) == ("a headline", "one\ntwo", "warning")


def test_a_refusal_is_told_in_the_services_words(
    receiver: tuple[str, list[bytes], list[int]],
) -> None:
    url, _, answers = receiver
    answers.append(500)
    answer = AppriseSender(["127.0.0.0/8"])(url, BODY, {})
    assert (answer.status, answer.refused) == (None, False)
    assert "500" in answer.error


def test_it_may_not_go_inside_nor_follow_there(
    receiver: tuple[str, list[bytes], list[int]],
) -> None:
    url, got, answers = receiver
    answer = AppriseSender()(url, BODY, {})
    assert (answer.refused, got) == (True, [])
    assert "private" in answer.error
    answers.append(307)
    led_away = AppriseSender(["127.0.0.0/8"])(f"{url}?redirect=yes", BODY, {})
    assert led_away.status is None
    assert len(got) == 1


@pytest.mark.parametrize("url", ["json://127.0.0.1/", "json://2130706433/", "jsons://localhost/"])
def test_an_address_inside_is_refused_when_it_is_saved(url: str) -> None:
    assert "private" in AppriseSender().examine(url)


def test_what_is_no_address_of_apprises_is_told() -> None:
    answer = AppriseSender()("nonsense", BODY, {})
    assert (answer.refused, answer.error) == (True, "Apprise does not know such an address")


def test_it_is_ended_when_its_time_is_up() -> None:
    answer = AppriseSender(longest_s=0.05)("json://example.org/", BODY, {})
    assert (answer.status, answer.error, answer.refused) == (None, "timed out", False)


def test_the_format_says_what_wakes_it() -> None:
    made = load_format("apprise")
    assert asleep(made) == ""
    made.needs = "a_module_nobody_has"  # type: ignore[misc]
    assert asleep(made) == (
        "Needs a_module_nobody_has, which is not installed: pip install 'watchkeeper[notify]'"
    )
