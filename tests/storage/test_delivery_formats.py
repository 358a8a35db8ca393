"""Delivery in the formats of receivers that are strict, slow to trust, or repeat what they got."""

from __future__ import annotations

import json
import logging
import socket
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from monitor.clock import FakeClock
from monitor.formats import FORMATS, load_format
from monitor.senders.http import HttpSender
from monitor.services.delivery import Delivery
from monitor.storage.base import Channel, Database, OutboxRow
from tests.storage.test_delivery import (
    Receiver,
    a_row,
    an_alert,
    clock,
    cut,
    delivery,
    drain,
    receiver,
    state_of,
)
from trainer_hooks.wire import RunStart

# Fixtures that are used here by their names.
__all__ = ["clock", "delivery", "receiver"]

MARKER = "marker-of-the-secret"


def prepare(database: Database, config: dict[str, Any], format_name: str, name: str) -> None:
    def work(uow: Any) -> None:
        uow.runs.ensure("run", at=100.0)
        uow.runs.describe("run", RunStart(name, 100.0), at=100.0)
        uow.channels.save(Channel("hook", name, format_name, config))
        numbers = [[f"detail {number}", float(number), "nats", "usual: 0"] for number in range(80)]
        evidence = {
            "summary": name, "causes": [{"text": "&" * 4000}] * 80, "first_action": "x" * 9000,
            "numbers": numbers,
        }  # fmt: skip
        uow.alerts.save(replace(an_alert(), evidence=evidence, title="t" * 5000), None)
        uow.outbox.enqueue([a_row()])

    database.write(work)


class StrictSlack:
    """Refuses what Slack refuses; the blocks altogether, where ``no_blocks``."""

    def __init__(self, receiver: Receiver, *, no_blocks: bool = False) -> None:
        self.receiver = receiver
        self.no_blocks = no_blocks

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        told = json.loads(self.receiver.got[-1][1])
        fine = self._fits(told)
        body = b"ok" if fine else b"invalid_blocks: " + b"x" * 400
        handler.send_response(200 if fine else 400)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _fits(self, told: dict[str, Any]) -> bool:
        blocks = told.get("blocks", [])
        if blocks and self.no_blocks or len(blocks) > 50:
            return False
        for block in blocks:
            room = 150 if block["type"] == "header" else 3000
            if len(block.get("text", {}).get("text", "")) > room:
                return False
            for element in block.get("elements", []):
                if not element["url"].startswith(("http://", "https://")):
                    return False
        return 0 < len(told["text"]) <= 40_000


@pytest.mark.parametrize("base_url", ["http://box:8765", "monitor:8000", ""])
def test_the_worst_alert_fits_into_slack(
    database: Database, clock: FakeClock, receiver: Receiver, base_url: str
) -> None:
    """A name of 5,000 characters, 80 details, and an address that is none."""
    name = "run " * 1250
    prepare(database, {"url": receiver.url}, "slack", name)
    receiver.script = [StrictSlack(receiver)]
    sender = HttpSender(allow_private=["127.0.0.0/8"])
    drain(Delivery(database, clock, "one", sender, base_url=base_url))
    row, (tried,) = state_of(database)
    assert (len(name), row.state, tried.status, tried.error) == (5000, "sent", 200, "")
    said = receiver.got[0][1].decode()
    assert ("actions" in said) == base_url.startswith("http://")
    assert json.loads(said)["text"].startswith("run run ")


def test_blocks_that_are_refused_are_said_in_plain_text_once(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    prepare(database, {"url": receiver.url}, "slack", "run")
    receiver.script = [StrictSlack(receiver, no_blocks=True)] * 2
    drain(delivery)
    row, tries = state_of(database)
    assert row.state == "sent"
    assert [tried.status for tried in tries] == [400, 200]
    assert tries[0].error.startswith("invalid_blocks: xxx")
    assert len(tries[0].error) == 200
    assert set(json.loads(receiver.got[1][1])) == {"text"}
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {"msg_1_opened"}


def test_what_is_refused_twice_is_given_up_and_shows_why(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    prepare(database, {"url": receiver.url}, "slack", "run")
    receiver.script = [(400, {}, b"no_text"), (400, {}, b"still no_text")]
    drain(delivery)
    row, tries = state_of(database)
    assert (row.state, row.last_status, row.last_error) == ("gave_up", 400, "still no_text")
    assert [tried.error for tried in tries] == ["no_text", "still no_text"]


def nowhere(host: str, port: int) -> list[str]:
    raise socket.gaierror(-2, f"no such name: {host}")


def slow(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.6)
    cut(handler)


@pytest.mark.parametrize("name", [name for name in FORMATS if load_format(name).sender == "http"])
def test_the_secret_is_nowhere_whatever_happens(
    database: Database,
    receiver: Receiver,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    """Not resolved, refused with the address repeated, cut off, too slow, refused for good; and
    another one taken. All loggers at DEBUG."""
    caplog.set_level(logging.DEBUG)
    for logger in list(logging.root.manager.loggerDict):
        caplog.set_level(logging.DEBUG, logger=logger)
    config = {
        "url": f"{receiver.url}/{MARKER}?key={MARKER}",
        "secret": "whsec_" + "QUFB" * 8,
        "server": receiver.url.rpartition("/hook")[0],
        "topic": MARKER,
        "authorization": f"Bearer {MARKER}",
        "routing_key": MARKER,
    }
    prepare(database, config, name, "run")
    echo = f"who is {config['url']} {MARKER}?".encode()
    drain(Delivery(database, clock, "one", HttpSender(resolver=nowhere)))
    hasty = HttpSender(allow_private=["127.0.0.0/8"], longest_s=0.3)
    receiver.script = [(500, {}, echo), cut, slow, (404, {}, echo), 200]
    for _ in range(5):
        clock.advance(700.0)
        drain(Delivery(database, clock, "one", hasty))
    clock.advance(6.5 * 3600.0)  # what was given up is told once more
    drain(Delivery(database, clock, "one", hasty))
    assert not [record for record in caplog.records if MARKER in record.getMessage()]
    assert MARKER not in caplog.text
    row, tries = state_of(database)
    assert tries
    assert MARKER not in "".join(tried.error for tried in tries) + row.last_error
    assert MARKER.encode() not in (row.payload or b"")
    if name != "pagerduty":  # whose address is its own
        assert [tried.status for tried in tries] == [None, 500, None, None, 404]
        assert tries[0].error == "the name cannot be resolved"
        assert tries[1].error.startswith("who is ")
        assert "…" in tries[1].error
        with database.read() as uow:
            assert [row.state for row, _ in uow.outbox.of_alert("alert1")] == ["gave_up", "sent"]


def test_a_channel_nothing_here_can_send_to_says_so(database: Database, delivery: Delivery) -> None:
    mail = {"host": "smtp.example.org", "sender": "a@example.org", "to": "b@example.org"}
    prepare(database, mail, "email", "run")
    drain(delivery)
    row, (tried,) = state_of(database)
    assert (row.state, tried.error) == ("gave_up", "nothing here can send this")


def test_messages_to_a_deleted_channel_are_withdrawn(
    database: Database, delivery: Delivery, receiver: Receiver
) -> None:
    prepare(database, {"url": receiver.url}, "slack", "run")
    assert database.write(lambda uow: uow.channels.delete("hook"))
    assert not database.write(lambda uow: uow.channels.delete("hook"))
    drain(delivery)
    row: OutboxRow = state_of(database)[0]
    assert (row.state, receiver.got) == ("cancelled", [])
