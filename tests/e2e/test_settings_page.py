"""The settings page in a real browser: a channel is added, tried out, changed and deleted."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.e2e.dashboard_story import IMG, ServerProcess, serving

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api")

MARKER = "marker-of-the-secret"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 1000}


@dataclass(slots=True)
class Receiver:
    """Refuses everything once, in words of its own, and then takes it."""

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Generator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, body = made.answers.pop(0) if made.answers else (200, b"ok")
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}/services/{MARKER}"
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def house(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Generator[ServerProcess]:
    monkeypatch.setenv("WATCHKEEPER_WEBHOOK_ALLOW_PRIVATE", '["127.0.0.0/8"]')
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def page(
    house: ServerProcess, browser_launch_args: dict[str, Any], complaints: list[str]
) -> Generator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(**browser_launch_args)
        made = browser.new_page(viewport=DESK)
        made.on("pageerror", lambda error: complaints.append(str(error)))
        made.on("dialog", lambda dialog: complaints.append(dialog.message))
        made.goto(f"{house.url}/settings")
        made.wait_for_selector("#add button")
        yield made
        browser.close()


def test_a_channel_from_its_form_to_its_end(
    page: Any, receiver: Receiver, complaints: list[str]
) -> None:
    assert "sent nowhere" in page.inner_text("#channels")
    page.click("#add button")
    page.select_option("select[name=format]", "slack")
    page.fill("input[name=name]", f"night {IMG}")
    page.fill("input[name='config.url']", "http://10.0.0.1/x")
    page.fill("input[name=tags]", "big, night")
    page.click(".form button[type=submit]")
    page.wait_for_selector(".form [role=alert]:not([hidden])")
    assert "the address is private" in page.inner_text(".form [role=alert]")
    page.fill("input[name='config.url']", receiver.url)
    page.click(".form button[type=submit]")
    page.wait_for_selector("[data-channel]")
    shown = page.inner_text("[data-channel]")
    assert f"night {IMG}" in shown
    assert "of runs tagged big or night" in shown
    assert "http://127.0.0.1/…cret" in shown

    receiver.answers = [(403, b"no such <b>hook</b>"), (200, b"thanks")]
    page.click("text=Send test")
    page.wait_for_selector("[data-channel] .answer .tag.fail")
    said = page.inner_text("[data-channel] .answer")
    assert "Not delivered" in said
    assert "403 no such <b>hook</b>" in said
    page.click("text=Send test")
    page.wait_for_selector("[data-channel] .answer .tag.ok")
    assert "200 thanks" in page.inner_text("[data-channel] .answer")

    page.click("text=Change")
    assert page.input_value("input[name='config.url']") == ""
    page.fill("input[name=tags]", "")
    page.click("text=Save")
    page.wait_for_selector("text=of all runs")
    page.click("text=Switch off")
    page.wait_for_selector("text=switched off by hand")
    page.click("text=Delete")
    page.click("text=Really delete?")
    page.wait_for_selector("text=sent nowhere")
    assert MARKER not in page.content()
    assert complaints == []


def test_every_form_can_be_filled_in_by_keyboard_and_on_a_phone(
    page: Any, complaints: list[str]
) -> None:
    page.set_viewport_size(PHONE)
    page.click("#add button")
    names = page.eval_on_selector_all("select[name=format] option", "all => all.map(o => o.value)")
    assert len(names) >= 10
    for name in names:
        page.select_option("select[name=format]", name)
        unnamed = page.eval_on_selector_all(
            ".form input, .form select", "all => all.filter(one => !one.labels.length).length"
        )
        assert unnamed == 0, name
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.form') !== null")
    page.click(".form >> text=Cancel")
    assert page.evaluate("document.activeElement.textContent") == "Add a channel"
    assert complaints == []
