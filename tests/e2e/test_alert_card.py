"""One cause, one card: an incident on the alert's page, who has it, and the tries to tell of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dashboard_story import IMG, ServerProcess, Story, serving
from trainer_hooks.wire import Cell

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api")


@pytest.fixture
def told() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def receiver(told: list[dict[str, Any]]) -> Generator[str]:
    """Refuses once, and then takes everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(503 if len(told) == 1 else 200)
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"busy" if len(told) == 1 else b"fine")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()


@pytest.fixture
def house(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: str
) -> Generator[ServerProcess]:
    monkeypatch.setenv("WATCHKEEPER_WEBHOOK_ALLOW_PRIVATE", '["127.0.0.0/8"]')
    monkeypatch.setenv("WATCHKEEPER_WEBHOOK_URL", receiver)
    monkeypatch.setenv("WATCHKEEPER_WEBHOOK_SECRET", "whsec_" + "QUFB" * 8)
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def browser(browser_launch_args: dict[str, Any]) -> Generator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(**browser_launch_args)
        yield found
        found.close()


def until(ask: Any, what: str, wait_s: float = 30.0) -> Any:
    end = time.monotonic() + wait_s
    while not (got := ask()):
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.1)
    return got


def train(story: Story, first: int, last: int) -> None:
    """Steps that repeat from 200 on; soon after the probe is surer than it is right."""
    steps = list(range(first, last + 1))

    def probed(value: float, step: int) -> Cell:
        return None if step % 5 else value

    columns: dict[str, list[Cell]] = {
        "loss/train": [2.0 for _ in steps],
        "repeat_share": [1.0 if step >= 200 else 0.0 for step in steps],
        "entropy_minus_nll/probe": [probed(-0.5 if step > 235 else 0.0, step) for step in steps],
        "loss/probe": [probed(2.5, step) for step in steps],
    }
    story.send(steps, columns)


def test_two_alerts_of_one_cause_are_one_push_and_one_card(
    house: ServerProcess, browser: Any, told: list[dict[str, Any]]
) -> None:
    story = Story(house, "stale", f"night {IMG}")
    story.begin(last=9)
    train(story, 10, 230)
    lead = until(lambda: house.get("alerts?run=stale&open=true")["alerts"], "the first alert")[0]
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{house.url}/alerts/{lead['id']}")
    page.wait_for_selector("#text h1")
    assert page.locator("#incident").count() == 0
    train(story, 231, 330)

    def both() -> Any:
        alerts = house.get("alerts?run=stale&open=true")["alerts"]
        return {one["detector"] for one in alerts} >= {"stale_data", "overconfidence"} and alerts

    alerts = until(both, "the second alert")
    assert {one["incident"] for one in alerts} == {lead["id"]}
    page.wait_for_selector("#incident")  # without a reload
    card = page.inner_text("#incident")
    assert "stale data" in card
    assert "overconfident" in card
    page.click("#incident a")
    page.wait_for_selector("#text h1:has-text('overconfident')")
    assert "stale data" in page.inner_text("#incident")

    page.goto(f"{house.url}/alerts")
    page.wait_for_selector("#alerts li .also")
    assert page.locator("#alerts li").count() == 1
    assert page.inner_text("#alerts li h2").startswith("stale data since step 200")
    assert page.inner_text("#alerts li .also").startswith("Of the same cause: overconfident since")

    page.goto(f"{house.url}/alerts/{lead['id']}")
    page.fill("#person", "kim")
    page.fill("#note", f"on it {IMG}")
    page.click("#actions >> text=Acknowledge")
    page.wait_for_selector("#text:has-text('acknowledged by kim')")
    held = house.get(f"alerts/{lead['id']}")
    assert (held["acknowledged_by"], held["acknowledged_note"]) == ("kim", f"on it {IMG}")

    until(lambda: len(told) >= 2, "the second try")
    page.reload()
    page.wait_for_selector("#history:has-text('503')")
    history = page.inner_text("#history")
    assert "200" in history
    assert "kim" in history
    opened = [one for one in told if one["type"] == "alert.opened"]
    assert len({json.dumps(one) for one in opened}) == 1, "one push, tried twice"
    assert complaints == []
