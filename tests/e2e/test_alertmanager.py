"""A real Alertmanager takes our push and routes it to its receiver: firing, renewed, resolved."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitor.clock import FakeClock
from monitor.senders.http import HttpSender
from monitor.services.channels import Channels, Draft
from monitor.services.delivery import Delivery
from monitor.services.keepalive import KeepAlive
from monitor.storage.base import Channel, Database, OutboxRow
from monitor.storage.engine import open_database
from tests.fixtures.require import need
from tests.storage.test_delivery import an_alert
from tests.unit.test_formats import a_message, render

CONFIG = """
global: {{resolve_timeout: 5m}}
route:
  receiver: night
  group_by: [alertname, run]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: night
    webhook_configs: [{{url: "{url}", send_resolved: true}}]
"""


@dataclass
class Manager:
    """A running Alertmanager and what its receiver was posted."""

    url: str = ""
    got: list[dict[str, Any]] = field(default_factory=list)

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/api/v2/alerts", trust_env=False).json()
        return found

    def wait_for(self, status: str) -> dict[str, Any]:
        end = time.monotonic() + 30.0
        while time.monotonic() < end:
            found = [one for one in self.got if one["status"] == status]
            if found:
                return found[-1]
            time.sleep(0.05)
        raise AssertionError(f"nothing {status} came to the receiver: {self.got}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


@pytest.fixture
def receiver() -> Generator[tuple[str, list[dict[str, Any]]]]:
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", got
    server.shutdown()
    server.server_close()


@pytest.fixture
def manager(receiver: tuple[str, list[dict[str, Any]]], tmp_path: Path) -> Generator[Manager]:
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    need(program is not None, "Alertmanager is not installed")
    port = free_port()
    file = tmp_path / "alertmanager.yml"
    file.write_text(CONFIG.format(url=receiver[0]))
    process = subprocess.Popen(
        [
            str(program),
            f"--config.file={file}",
            f"--storage.path={tmp_path / 'am'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    made = Manager(f"http://127.0.0.1:{port}", receiver[1])
    try:
        _wait_until_ready(made.url, process)
        yield made
    finally:
        process.terminate()
        process.wait(10.0)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30.0
    while True:
        assert process.poll() is None, "Alertmanager ended"
        assert time.monotonic() < end, "Alertmanager did not get ready"
        try:
            if httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)


@pytest.fixture
def database(sqlite_url: str) -> Generator[Database]:
    held = open_database(sqlite_url)
    yield held
    held.close()


def a_row(moment: str, at: float) -> OutboxRow:
    return OutboxRow(f"msg_{moment}", "run", "alert1", "am", moment, at, at)


def test_an_alert_goes_through_a_real_alertmanager(manager: Manager, database: Database) -> None:
    now = time.time()
    clock = FakeClock(now)
    sender = HttpSender(allow_private=["127.0.0.0/8"])
    delivery = Delivery(database, clock, "one", sender, base_url="http://box:8765")
    renewing = KeepAlive(database, clock, {"http": sender}, base_url="http://box:8765")
    alert = replace(an_alert(), opened_at=now - 1.0)

    def opening(uow: Any) -> None:
        uow.runs.ensure("run", at=now)
        uow.channels.save(Channel("am", "am", "alertmanager_push", {"url": manager.url}))
        uow.alerts.save(alert, None)
        uow.outbox.enqueue([a_row("opened", now)])

    database.write(opening)
    renewing.run_once()
    assert manager.alerts() == [], "what was not told is not renewed"
    while delivery.run_once():
        pass
    firing = manager.wait_for("firing")
    (said,) = firing["alerts"]
    assert said["labels"] == {
        "alertname": "stale_data",
        "run": "run",
        "run_name": "run",
        "severity": "critical",
        "source": "watchkeeper",
    }
    assert "stale data since step 41,203" in said["annotations"]["summary"]
    assert said["annotations"]["runbook_url"] == "http://box:8765/docs/detectors/stale_data"

    first = manager.alerts()[0]["updatedAt"]
    clock.advance(61.0)
    renewing.run_once()
    (renewed,) = manager.alerts()
    assert renewed["updatedAt"] > first, "a firing alert is sent again and again"
    renewing.run_once()
    assert manager.alerts()[0]["updatedAt"] == renewed["updatedAt"], "once a minute"

    over = replace(alert, state="resolved", resolved_at=time.time(), resolved_step=41_400)

    def ending(uow: Any) -> None:
        uow.alerts.save(over, None)
        uow.outbox.enqueue([a_row("resolved", now)])

    database.write(ending)
    while delivery.run_once():
        pass
    resolved = manager.wait_for("resolved")
    assert resolved["alerts"][0]["fingerprint"] == said["fingerprint"]
    clock.advance(61.0)
    renewing.run_once()
    assert manager.alerts() == [], "nothing is renewed after its end"


def test_the_test_button_leaves_nothing_behind_in_alertmanager(
    manager: Manager, database: Database
) -> None:
    sender = HttpSender(allow_private=["127.0.0.0/8"])
    channels = Channels(database, time.time, {"http": sender})
    made = channels.create("alertmanager_push", Draft("am", {"url": manager.url}))
    answers = channels.test(made.id)
    assert [(one.moment, one.status) for one in answers] == [("opened", 200), ("resolved", 200)]
    time.sleep(0.2)
    assert manager.alerts() == []


def test_our_version_4_payload_has_what_alertmanagers_has(
    manager: Manager, database: Database
) -> None:
    """Receivers written for Alertmanager find every field they may look for."""
    ours = render("alertmanager", a_message())
    body = [{"labels": {"alertname": "x", "run": "r"}, "annotations": {"summary": "s"}}]
    httpx.post(f"{manager.url}/api/v2/alerts", json=body, trust_env=False).raise_for_status()
    theirs = manager.wait_for("firing")
    assert set(theirs) <= set(ours)
    assert set(theirs["alerts"][0]) <= set(ours["alerts"][0])
