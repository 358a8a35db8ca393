"""An acknowledgement is told to receivers that keep alerts themselves, and to nobody else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from monitor.clock import FakeClock
from monitor.domain.alert import AlertChange
from monitor.senders.http import Answer
from monitor.services.delivery import Delivery
from monitor.services.detection import write_effects
from monitor.services.judging import Effect
from monitor.storage.base import Channel, Database
from tests.storage.test_delivery import an_alert, drain

KEY = "k" * 32


class Wire:
    """Takes everything, or nothing."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.answer = Answer(202)

    def __call__(self, url: str, body: bytes, headers: Any, *, method: str) -> Answer:
        self.got.append(json.loads(body))
        return self.answer


@pytest.fixture
def wire(database: Database) -> Wire:
    def work(uow: Any) -> None:
        uow.runs.ensure("run", at=100.0)
        uow.channels.save(Channel("pager", "pager", "pagerduty", {"routing_key": KEY}))
        uow.channels.save(Channel("chat", "chat", "slack", {"url": "https://x.example/"}))

    database.write(work)
    return Wire()


def effects(*states: str) -> list[Effect]:
    found = []
    for state in states:
        alert = replace(an_alert(), state=state, acknowledged_by="ada")  # type: ignore[arg-type]
        change = AlertChange(alert.id, "run", "", state, "told", 100.0)
        tell = {"firing": "opened", "resolved": "resolved"}.get(state)
        found.append(Effect(alert, change, tell))  # type: ignore[arg-type]
    return found


def told(database: Database, wire: Wire, clock: FakeClock, *states: str) -> None:
    for effect in effects(*states):
        database.write(lambda uow, effect=effect: write_effects(uow, "run", [effect], clock()))
        clock.advance(30.0)
        drain(Delivery(database, clock, "one", wire, seed=1))


def test_the_pager_follows_and_the_chat_is_not_disturbed(database: Database, wire: Wire) -> None:
    told(database, wire, FakeClock(1000.0), "firing", "acknowledged", "resolved")
    pager = [one["event_action"] for one in wire.got if "event_action" in one]
    assert pager == ["trigger", "acknowledge", "resolve"]
    assert len([one for one in wire.got if "text" in one]) == 2


def test_who_was_never_told_is_not_told_that_somebody_has_it(
    database: Database, wire: Wire
) -> None:
    wire.answer = Answer(404)
    told(database, wire, FakeClock(1000.0), "firing", "acknowledged")
    assert [one["event_action"] for one in wire.got if "event_action" in one] == ["trigger"]


def test_a_replay_tells_it_once(database: Database, wire: Wire) -> None:
    told(database, wire, FakeClock(1000.0), "firing", "acknowledged", "acknowledged")
    pager = [one["event_action"] for one in wire.got if "event_action" in one]
    assert pager == ["trigger", "acknowledge"]
