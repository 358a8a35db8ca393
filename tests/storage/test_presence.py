"""Running, stalled, lost and done, by arrival; ticks of server time. On both databases."""

from __future__ import annotations

import pytest

from monitor.clock import FakeClock
from monitor.services.ingest import Ingest
from monitor.services.presence import LOST_S, STALLED_S, Presence
from monitor.services.ticks import LEASE_S, TICK_S, Ticks
from monitor.storage.base import Database
from tests.fixtures.batches import batch, body, opening
from trainer_hooks.wire import Heartbeat, Phase, Record, RunEnd


class Story:
    """A run, and the server that watches it, on one clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = FakeClock(10_000.0)
        self.ingest = Ingest(database, self.clock)
        self.presence = Presence(database, self.clock)
        self.seq = 0
        self.send(steps=[0], records=opening("r"))
        self.presence.run_once()

    def send(self, *, steps: list[int] | None = None, records: list[Record] | None = None) -> None:
        one = batch("r", self.seq, steps or [], records=records or [], at=self.clock())
        self.ingest.accept(body(one))
        self.seq += 1

    def beat(self) -> None:
        self.send(records=[Heartbeat(at=self.clock())])

    def state(self) -> str:
        self.presence.run_once()
        with self.database.read() as uow:
            run = uow.runs.get("r")
        assert run is not None
        return run.state

    def wait(self, seconds: float, *, beating: bool) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.advance(min(15.0, end - self.clock()))
            if beating:
                self.beat()
            self.presence.run_once()


@pytest.fixture
def story(database: Database) -> Story:
    return Story(database)


def test_silence_is_lost_and_a_sign_of_life_brings_it_back(story: Story) -> None:
    assert story.state() == "running"
    story.wait(LOST_S - 1, beating=False)
    assert story.state() == "running"
    story.clock.advance(2)
    assert story.state() == "lost"
    story.send(steps=[1])
    assert story.state() == "running"


def test_a_heart_that_beats_without_steps_is_stalled(story: Story) -> None:
    story.wait(STALLED_S - 5, beating=True)
    assert story.state() == "running"
    story.wait(10, beating=True)
    assert story.state() == "stalled"
    story.send(steps=[1])
    assert story.state() == "running"


def test_an_evaluation_under_way_is_no_stall(story: Story) -> None:
    story.send(records=[Phase("p", "evaluation", 0, story.clock())])
    story.wait(2 * STALLED_S, beating=True)
    assert story.state() == "running"
    ended = Phase("p", "evaluation", 0, story.clock(), end_step=0, end_at=story.clock())
    story.send(records=[ended])
    story.wait(STALLED_S - 5, beating=True)
    assert story.state() == "running"  # it has as long as any step to come back
    story.wait(10, beating=True)
    assert story.state() == "stalled"


def test_slow_steps_have_ten_of_their_own_time(story: Story) -> None:
    for step in range(1, 4):
        story.wait(120, beating=True)
        story.send(steps=[step])
        story.presence.run_once()
    story.wait(1000, beating=True)
    assert story.state() == "running"
    story.wait(220, beating=True)
    assert story.state() == "stalled"


def test_the_end_a_client_declares_wins(story: Story) -> None:
    story.send(records=[RunEnd("finished", story.clock(), 0)])
    story.wait(10 * LOST_S, beating=False)
    assert story.state() == "finished"


def test_the_time_the_server_was_down_is_nobodys_silence(story: Story) -> None:
    story.clock.advance(100 * LOST_S)
    story.presence = Presence(story.database, story.clock)
    assert story.state() == "running"
    story.wait(LOST_S + 1, beating=False)
    assert story.state() == "lost"


def ticks_in(database: Database) -> list[float]:
    with database.read() as uow:
        return [e.at for e in uow.log.read("r", after=0, limit=1000) if e.kind == "tick"]


def test_time_is_told_every_quarter_minute_and_not_made_up(story: Story) -> None:
    ticks = Ticks(story.database, "me", story.clock)
    for _ in range(31):
        ticks.run_once()
        story.clock.advance(1.0)
    assert ticks_in(story.database) == [10_000.0, 10_000.0 + TICK_S, 10_000.0 + 2 * TICK_S]
    story.clock.advance(3600.0)
    ticks.run_once()
    assert len(ticks_in(story.database)) == 4


def test_of_two_servers_one_ticks(story: Story) -> None:
    mine = Ticks(story.database, "me", story.clock)
    yours = Ticks(story.database, "you", story.clock)
    assert mine.run_once() == 1
    assert yours.run_once() == 0
    assert LEASE_S > TICK_S


def test_a_run_that_ended_is_not_ticked_for(story: Story) -> None:
    story.send(records=[RunEnd("finished", story.clock(), 0)])
    assert Ticks(story.database, "me", story.clock).run_once() == 0
