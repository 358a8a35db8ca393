"""The live stream's heart: exact resumption, bounded lag, on both databases."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable

import pytest

from monitor.clock import FakeClock
from monitor.services.cursors import decode_cursor
from monitor.services.ingest import Ingest
from monitor.services.latest import Latest
from monitor.services.live import FARTHEST_BACK, Listener, Live, Message
from monitor.services.overview import Overview
from monitor.storage.base import Database
from tests.fixtures.batches import batch, body, opening
from trainer_hooks.wire import Event, Phase


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    made = asyncio.new_event_loop()
    yield made  # type: ignore[misc]
    made.close()


@pytest.fixture
def live(database: Database) -> Live:
    made = Live(database, Overview(Latest()), FakeClock(100.0))
    database.on_append(made.appended)
    return made


def feed(database: Database, batches: int, *, run: str = "r", first: int = 0) -> None:
    ingest = Ingest(database, lambda: 1000.0)
    for seq in range(first, first + batches):
        records = opening(run) if seq == 0 else []
        if seq % 3 == 1:
            records = [
                Event("note", seq * 4, 1.0, text=f"e{seq}"),
                Phase(f"p{seq}", "checkpoint", seq * 4, 1.0),
            ]
        steps = [seq * 4 + k for k in range(4)]
        ingest.accept(body(batch(run, seq, steps, records=records)))


def drain(live: Live, listener: Listener) -> list[Message]:
    found: list[Message] = []
    more = True
    while more:
        messages, more = live.take(listener)
        found.extend(messages)
    return found


def steps_of(messages: list[Message]) -> list[int]:
    rows = [json.loads(m.data)["rows"] for m in messages if m.event == "points"]
    return [int(row[0]) for line in rows for row in line["loss/train"]]


def test_everything_is_told_once_and_in_order(
    database: Database, live: Live, loop: asyncio.AbstractEventLoop
) -> None:
    listener = Listener(loop, {"r": (0, 0)})
    live.join(listener)
    feed(database, 9)
    messages = drain(live, listener)
    assert steps_of(messages) == list(range(36))
    texts = [json.loads(m.data)["text"] for m in messages if m.event == "event"]
    assert texts == ["e1", "e4", "e7"]
    assert sum(m.event == "phase" for m in messages) == 3
    assert drain(live, listener) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_anywhere_loses_and_doubles_nothing(
    database: Database, live: Live, loop: asyncio.AbstractEventLoop, seed: int
) -> None:
    """The connection breaks after any message; the next one begins at the last id heard."""
    draw = random.Random(seed)
    feed(database, 12)
    heard: list[Message] = []
    places = {"r": (0, 0)}
    while True:
        messages = [m for m in drain(live, Listener(loop, dict(places))) if m.event != "run"]
        if not messages:
            break
        kept = messages[: draw.randint(1, len(messages))]
        heard.extend(kept)
        found = decode_cursor(kept[-1].id)
        assert found is not None
        places = found
    assert steps_of(heard) == list(range(48))
    assert [json.loads(m.data)["text"] for m in heard if m.event == "event"] == [
        "e1", "e4", "e7", "e10",
    ]  # fmt: skip
    assert sum(m.event == "phase" for m in heard) == 4


def test_who_is_too_far_behind_starts_over(
    database: Database, live: Live, loop: asyncio.AbstractEventLoop
) -> None:
    feed(database, 3)
    run = "r"

    def many(uow: object) -> None:
        for _ in range(FARTHEST_BACK + 1):
            uow.log.append_note(run, "tick", {}, at=1.0)  # type: ignore[attr-defined]

    database.write(many)
    messages = drain(live, Listener(loop, {"r": (0, 0)}))
    assert [m.event for m in messages if m.event != "run"] == ["resync"]
    assert decode_cursor(messages[0].id) == {"r": (3 + FARTHEST_BACK + 1, 0)}


def test_a_place_beyond_the_log_starts_over(
    database: Database, live: Live, loop: asyncio.AbstractEventLoop
) -> None:
    """The database was restored from a backup: positions are used again."""
    feed(database, 2)
    messages = drain(live, Listener(loop, {"r": (99, 0)}))
    assert [m.event for m in messages if m.event != "run"] == ["resync"]


def test_numbers_that_are_none_travel_by_name(
    database: Database, live: Live, loop: asyncio.AbstractEventLoop
) -> None:
    ingest = Ingest(database, lambda: 1000.0)
    columns = {"loss/train": ["nan", "inf", "-inf", 1.5, None]}
    ingest.accept(body(batch("r", 0, [1, 2, 3, 4, 5], columns=columns)))  # type: ignore[arg-type]
    (message,) = [m for m in drain(live, Listener(loop, {"r": (0, 0)})) if m.event == "points"]
    values = [row[2] for row in json.loads(message.data)["rows"]["loss/train"]]
    assert values == ["nan", "inf", "-inf", 1.5]


def test_the_list_of_runs_hears_of_each_run_that_moved(
    database: Database, live: Live, loop: asyncio.AbstractEventLoop
) -> None:
    listener = Listener(loop, None)
    live.join(listener)
    feed(database, 2)
    feed(database, 1, run="other")
    until(lambda: listener.dirty == {"r", "other"})  # PostgreSQL tells a moment later
    messages = drain(live, listener)
    assert {json.loads(m.data)["id"] for m in messages if m.event == "run"} == {"r", "other"}
    feed(database, 1, first=2)
    until(lambda: listener.dirty == {"r"})
    assert drain(live, listener) == []  # within the same second: due later
    assert listener.dirty == {"r"}


def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
