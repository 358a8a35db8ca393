"""Alerts renewed to a receiver that forgets: what, when, and what is said when it fails."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from monitor.clock import FakeClock
from monitor.senders.http import Answer
from monitor.services.keepalive import KeepAlive
from monitor.storage.base import Channel, Database, OutboxRow
from tests.storage.test_delivery import an_alert

MARKER = "marker-of-the-secret"


class Wire:
    """A sender that writes down what it was given and answers as told."""

    def __init__(self) -> None:
        self.got: list[list[dict[str, Any]]] = []
        self.answer = Answer(200)

    def __call__(self, url: str, body: bytes, headers: Any, *, method: str) -> Answer:
        self.got.append(json.loads(body))
        return self.answer


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000.0)


@pytest.fixture
def renewing(database: Database, clock: FakeClock, wire: Wire) -> KeepAlive:
    def work(uow: Any) -> None:
        uow.runs.ensure("run", at=100.0)
        config = {"url": f"http://am.example:9093/{MARKER}"}
        uow.channels.save(Channel("am", "am", "alertmanager_push", config))
        uow.channels.save(Channel("hook", "hook", "slack", {"url": "https://x.example/"}))
        for number in (1, 2, 3):
            alert = replace(an_alert(number), detector=f"rule_{number}")
            uow.alerts.save(alert, None)
        for number, channel, state in (
            (1, "am", "sent"),
            (2, "hook", "sent"),
            (3, "am", "gave_up"),
        ):
            row = OutboxRow(
                f"m{number}", "run", f"alert{number}", channel, "opened", 1.0, 1.0, state=state
            )  # type: ignore[arg-type]
            uow.outbox.enqueue([row])

    database.write(work)
    return KeepAlive(database, clock, {"http": wire})


def test_what_this_receiver_took_and_is_open_is_renewed_once_a_minute(
    database: Database, renewing: KeepAlive, clock: FakeClock, wire: Wire
) -> None:
    for _ in range(3):
        renewing.run_once()
    assert [[one["labels"]["alertname"] for one in body] for body in wire.got] == [["rule_1"]]
    clock.advance(60.0)
    renewing.run_once()
    assert len(wire.got) == 2
    database.write(lambda uow: uow.alerts.save(replace(an_alert(1), state="resolved"), None))
    clock.advance(60.0)
    renewing.run_once()
    assert len(wire.got) == 2


def test_a_channel_that_is_off_is_left_alone(
    database: Database, renewing: KeepAlive, wire: Wire
) -> None:
    database.write(lambda uow: uow.channels.disable("am", "off"))
    renewing.run_once()
    assert wire.got == []


def test_a_restart_renews_at_once(
    database: Database, renewing: KeepAlive, clock: FakeClock, wire: Wire
) -> None:
    renewing.run_once()
    KeepAlive(database, clock, {"http": wire}).run_once()
    assert len(wire.got) == 2


def test_a_failure_is_logged_without_the_address_and_tried_again(
    renewing: KeepAlive, clock: FakeClock, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.answer = Answer(500, said=f"no such path /{MARKER}")
    renewing.run_once()
    assert "channel am was not renewed: 500" in caplog.text
    assert MARKER not in caplog.text
    clock.advance(60.0)
    renewing.run_once()
    assert len(wire.got) == 2
