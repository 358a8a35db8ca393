"""Channels over the API: made, changed, tried out; secrets go in and never come out."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from monitor.formats import FORMATS
from monitor.settings import Settings
from tests.api.conftest import Running, running

MARKER = "marker-of-the-secret"
SECRET = "whsec_" + "QUFB" * 8


@dataclass
class Receiver:
    """Answers POSTs by its script: (status, body)."""

    url: str = ""
    script: list[tuple[int, bytes]] = field(default_factory=list)
    got: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Generator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.got.append((self.path, headers, body))
            status, answer = made.script.pop(0) if made.script else (200, b"ok")
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def house(tmp_path: Path) -> Generator[Running]:
    """A server whose messages may stay on this machine."""
    yield from running(Settings(port=0, data_dir=tmp_path, webhook_allow_private=["127.0.0.0/8"]))


def create(house: Running, format_name: str, config: dict[str, str], **more: Any) -> Any:
    said = {"format": format_name, "config": config, **more}
    answer = house.client.post("/api/v1/channels", json=said)
    assert answer.status_code == 201, answer.text
    return answer.json()


def change(house: Running, channel: str, **what: Any) -> Any:
    return house.client.patch(f"/api/v1/channels/{channel}", json=what)


def test_every_format_has_a_form(house: Running) -> None:
    formats = house.get("/api/v1/formats")["formats"]
    assert [one["name"] for one in formats] == list(FORMATS)
    slack = next(one for one in formats if one["name"] == "slack")
    (only,) = slack["fields"]
    assert (only["name"], only["secret"], only["required"]) == ("url", True, True)
    email = next(one for one in formats if one["name"] == "email")
    security = next(one for one in email["fields"] if one["name"] == "security")
    assert security["choices"] == ["starttls", "tls", "none"]


def test_a_channel_lives_and_is_forgotten(house: Running, receiver: Receiver) -> None:
    url = f"{receiver.url}/services/{MARKER}"
    made = create(
        house, "slack", {"url": url}, name="night", route={"severity": "critical", "tags": ["big"]}
    )
    assert made["name"] == "night"
    assert made["route"] == {"severity": "critical", "tags": ["big"]}
    assert made["config"] == {"url": "http://127.0.0.1/…cret"}
    assert change(house, made["id"], enabled=False).json()["enabled"] is False
    (held,) = house.get("/api/v1/channels")["channels"]
    assert (held["enabled"], held["disabled_reason"]) == (False, "switched off by hand")
    again = change(house, made["id"], enabled=True, name="day", route={"tags": []}).json()
    assert (again["enabled"], again["disabled_reason"], again["name"]) == (True, "", "day")
    assert again["route"] == {"severity": "warning", "tags": []}
    with house.parts.database.read() as uow:
        assert uow.channels.all()[0].config["url"] == url
    assert house.client.delete(f"/api/v1/channels/{made['id']}").status_code == 204
    assert house.get("/api/v1/channels") == {"channels": []}
    for gone in (
        house.client.delete(f"/api/v1/channels/{made['id']}"),
        change(house, made["id"], enabled=True),
        house.client.post(f"/api/v1/channels/{made['id']}/test"),
    ):
        assert gone.status_code == 404


def test_quiet_hours_are_a_channels_own(house: Running, receiver: Receiver) -> None:
    made = create(
        house, "slack", {"url": f"{receiver.url}/x"}, quiet_hours="22:00-07:00  Europe/Amsterdam"
    )
    assert made["quiet_hours"] == "22:00-07:00 Europe/Amsterdam"
    for wrong in ("25:00-07:00", "22:00-07:00 Mars/Olympus", "at night"):
        assert change(house, made["id"], quiet_hours=wrong).status_code == 422
    assert change(house, made["id"], name="x").json()["quiet_hours"] == made["quiet_hours"]
    assert change(house, made["id"], quiet_hours="").json()["quiet_hours"] == ""


def test_the_test_button_shows_what_the_receiver_said(house: Running, receiver: Receiver) -> None:
    made = create(house, "slack", {"url": f"{receiver.url}/{MARKER}"}, name="night")
    receiver.script = [(200, b"ok"), (403, b"invalid_token for /" + MARKER.encode())]
    path = f"/api/v1/channels/{made['id']}/test"
    (fine,) = house.client.post(path).json()["answers"]
    assert (fine["sent"], fine["status"], fine["answer"]) == (True, 200, "ok")
    assert fine["latency_s"] > 0
    assert receiver.got[0][2]["text"] == "Watchkeeper: test of night"
    (refused,) = house.client.post(path).json()["answers"]
    assert (refused["sent"], refused["status"]) == (False, 403)
    assert refused["answer"] == "invalid_token for …"


def test_a_refused_test_is_tried_in_plain_text(house: Running, receiver: Receiver) -> None:
    made = create(house, "slack", {"url": f"{receiver.url}/x"})
    receiver.script = [(400, b"invalid_blocks"), (200, b"ok")]
    answers = house.client.post(f"/api/v1/channels/{made['id']}/test").json()["answers"]
    assert [(one["status"], one["answer"]) for one in answers] == [
        (400, "invalid_blocks"),
        (200, "ok"),
    ]
    assert set(receiver.got[1][2]) == {"text"}


def test_a_receiver_that_keeps_a_state_is_left_without_one(
    house: Running, receiver: Receiver
) -> None:
    config = {"url": receiver.url, "authorization": MARKER}
    made = create(house, "alertmanager_push", config)
    answers = house.client.post(f"/api/v1/channels/{made['id']}/test").json()["answers"]
    assert [one["moment"] for one in answers] == ["opened", "resolved"]
    (path, headers, opened), (_, _, over) = receiver.got
    assert (path, headers["authorization"]) == ("/api/v2/alerts", f"Bearer {MARKER}")
    assert opened[0]["labels"] == over[0]["labels"]
    assert "endsAt" not in opened[0]
    assert over[0]["endsAt"]


def test_an_empty_secret_stays_and_null_takes_it_away(house: Running, receiver: Receiver) -> None:
    made = create(house, "alertmanager", {"url": receiver.url, "authorization": MARKER})
    assert made["config"]["authorization"] == "…cret"
    kept = change(house, made["id"], config={"url": "", "authorization": ""}).json()
    assert kept["config"] == made["config"]
    without = change(house, made["id"], config={"authorization": None}).json()
    assert set(without["config"]) == {"url"}


def test_a_kept_secret_is_not_carried_to_another_host(house: Running, receiver: Receiver) -> None:
    """Else whoever may change an address could have the stored token sent to himself."""
    made = create(house, "alertmanager", {"url": receiver.url, "authorization": MARKER})
    elsewhere = receiver.url.replace("127.0.0.1", "127.0.0.2")
    refused = change(house, made["id"], config={"url": elsewhere})
    assert refused.status_code == 422
    assert "Authorization again" in refused.json()["detail"]
    both = change(house, made["id"], config={"url": elsewhere, "authorization": "Bearer new"})
    assert both.status_code == 200


@pytest.mark.parametrize(
    ("format_name", "config", "why"),
    [
        ("carrier-pigeon", {}, "no format"),
        ("slack", {}, "needs: Webhook address"),
        ("slack", {"url": "https://x.example/", "more": "y"}, "has no more"),
        ("slack", {"url": "ftp://x.example/"}, "only http and https"),
        ("slack", {"url": "http://192.168.1.1/x"}, "private"),
        ("slack", {"url": "http://0xa9fea9fe/latest"}, "private"),
        ("slack", {"url": "http://[::ffff:169.254.169.254]/"}, "private"),
        ("slack", {"url": "https://x.example/\nx"}, "do not show"),
        ("slack", {"url": "https://x.example/" + "y" * 5000}, "too long"),
        ("generic", {"url": "https://x.example/", "secret": "not base64!"}, "cannot be addressed"),
        ("email", {"host": "x", "sender": "nobody", "to": "a@b.example"}, "cannot be addressed"),
        ("email", {"host": "10.0.0.1", "sender": "a@b.example", "to": "a@b.example"}, "private"),
        (
            "email",
            {"host": "x", "sender": "a@b.example", "to": "a@b.example", "security": "ssl3"},
            "is one of",
        ),
        ("pagerduty", {"routing_key": "k" * 32, "region": "moon"}, "is one of"),
    ],
)
def test_what_could_not_be_sent_is_not_saved(
    house: Running, format_name: str, config: dict[str, str], why: str
) -> None:
    answer = house.client.post("/api/v1/channels", json={"format": format_name, "config": config})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert why in answer.json()["detail"]
    assert house.get("/api/v1/channels") == {"channels": []}


def test_the_webhook_of_the_settings_is_shown_and_changed_there(tmp_path: Path) -> None:
    said = {
        "webhook_url": SecretStr(f"https://x.example/{MARKER}"),
        "webhook_secret": SecretStr(SECRET),
    }
    for house in running(Settings(port=0, data_dir=tmp_path, **said)):  # type: ignore[arg-type]
        (one,) = house.get("/api/v1/channels")["channels"]
        assert one["fixed"]
        assert one["config"] == {"url": "https://x.example/…cret", "secret": "…QUFB"}
        assert change(house, one["id"], enabled=False).status_code == 409
        assert house.client.delete(f"/api/v1/channels/{one['id']}").status_code == 409


def test_channels_need_the_read_token(tmp_path: Path) -> None:
    tokens = {"ingest_token": SecretStr("in"), "read_token": SecretStr("out")}
    for house in running(Settings(port=0, data_dir=tmp_path, **tokens)):  # type: ignore[arg-type]
        for bearer in ({}, {"authorization": "Bearer in"}):
            assert house.client.get("/api/v1/channels", headers=bearer).status_code == 401
            made = house.client.post("/api/v1/channels", json={"format": "slack"}, headers=bearer)
            assert made.status_code == 401
        page = house.client.get("/settings", headers={"authorization": "Bearer out"}).text
        assert page.count("<dd>set</dd>") == 2


def test_the_secret_is_in_no_answer_page_or_log(
    house: Running, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for logger in list(logging.root.manager.loggerDict):
        if not logger.startswith(("httpx", "httpcore")):  # this test's own client
            caplog.set_level(logging.DEBUG, logger=logger)
    made = create(house, "ntfy", {"topic": MARKER, "server": receiver.url, "authorization": MARKER})
    path = f"/api/v1/channels/{made['id']}"
    receiver.script = [(200, MARKER.encode()), (500, f"no topic {MARKER}".encode())]
    texts = [json.dumps(made)]
    texts += [house.client.post(f"{path}/test").text for _ in range(2)]
    texts += [change(house, made["id"], config={"topic": f"{MARKER} {MARKER}\n"}).text]
    texts += [change(house, made["id"], config={"topic": [MARKER]}).text]
    texts += [house.client.get(page).text for page in ("/api/v1/channels", "/settings", "/metrics")]
    assert not [text for text in texts if MARKER in text]
    assert [body["topic"] for _, _, body in receiver.got] == [MARKER, MARKER]
    assert MARKER not in caplog.text
