"""Dead, slow or done: what a run's state says and what is told, of eight stories."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from monitor.clock import FakeClock
from monitor.services.detection import Detection
from monitor.services.ingest import Ingest
from monitor.services.presence import Presence
from monitor.storage.base import Database
from monitor.storage.engine import open_database
from tests.fixtures.batches import batch, body
from tests.fixtures.house import House
from trainer_hooks.wire import AttemptStart, Cell, Heartbeat, Phase, Record, RunEnd, RunStart

MINUTE_S = 60.0
HOUR_S = 3600.0
MONTH_S = 30 * 86_400.0


class Watched(House):
    """A house with the judges that are shipped, that also says how a run is."""

    def restart(self) -> None:
        super().restart()
        self.ingest = Ingest(self.database, self.clock)
        self.presence = Presence(self.database, self.clock)
        self.detection = Detection(
            self.database, self.clock, f"real-{self._starts}", lease_s=0.0
        )  # fmt: skip

    def send(self, *records: Record, steps: int = 0) -> None:
        seq = self._steps.get("seq", -1) + 1
        first = self._steps.get("r", 0) + 1
        self._steps |= {"seq": seq, "r": first + steps - 1}
        numbers = list(range(first, first + steps))
        losses: list[Cell] = [2.0 + 4.0 * (step + 20) ** -0.5 for step in numbers]
        columns: dict[str, list[Cell]] = {"loss/train": losses, "step_s": [1.0] * steps}
        now = self.clock()
        start = [RunStart("tiny", now), AttemptStart(0, 1, now)] if seq == 0 else []
        given = [*start, *records]
        made = batch("r", seq, numbers, columns=columns, records=given, at=self.clock() - steps)
        self.ingest.accept(body(made))
        self.settle()
        self.presence.run_once()

    def train(self, seconds: float) -> None:
        """It goes on, a step a second."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.wait(15.0)
            self.send(steps=15)

    def beat(self, seconds: float) -> None:
        """The client lives and its loop does not step."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.wait(30.0)
            self.send(Heartbeat(at=self.clock()))

    def _tick(self) -> None:
        super()._tick()
        self.presence.run_once()

    @property
    def state(self) -> str:
        self.presence.run_once()
        with self.database.read() as uow:
            run = uow.runs.get("r")
        assert run is not None
        return run.state


@pytest.fixture
def house(sqlite_url: str) -> Generator[Watched]:
    database: Database = open_database(sqlite_url)
    made = Watched(database, FakeClock(1_800_000_000.0))
    made.send(steps=15)
    made.train(2 * MINUTE_S)
    yield made
    database.close()


def goes_on(house: Watched) -> None:
    house.train(10 * MINUTE_S)


def falls_silent(house: Watched) -> None:
    house.wait(5 * MINUTE_S)


def comes_back(house: Watched) -> None:
    house.wait(5 * MINUTE_S)
    house.train(3 * MINUTE_S)


def hangs(house: Watched) -> None:
    house.beat(8 * MINUTE_S)


def steps_again(house: Watched) -> None:
    house.beat(8 * MINUTE_S)
    house.train(3 * MINUTE_S)


def evaluates_for_long(house: Watched) -> None:
    house.send(Phase("p", "evaluation", 100, house.clock()))
    house.beat(15 * MINUTE_S)


def ended_a_month_ago(house: Watched) -> None:
    house.send(RunEnd("finished", house.clock(), 135))
    house.wait(MONTH_S, every_s=86_400.0)


def server_was_away(house: Watched) -> None:
    house.wait(3 * HOUR_S, up=False)
    house.restart()
    house.wait(75.0)


STORIES: dict[str, tuple[Callable[[Watched], None], str, list[str]]] = {
    "it goes on": (goes_on, "running", []),
    "nothing comes any more": (falls_silent, "lost", ["opened"]),
    "it comes back": (comes_back, "running", ["opened", "resolved"]),
    "heartbeats without steps": (hangs, "stalled", ["opened"]),
    "the next step": (steps_again, "running", ["opened", "resolved"]),
    "a long evaluation": (evaluates_for_long, "running", []),
    "finished a month ago": (ended_a_month_ago, "finished", []),
    "the server itself was away for three hours": (server_was_away, "running", []),
}


@pytest.mark.parametrize("name", STORIES)
def test_state_and_messages(house: Watched, name: str) -> None:
    story, state, messages = STORIES[name]
    story(house)
    assert (house.state, house.types) == (state, messages), [one.headline for one in house.sent]


def test_a_whole_window_after_the_server_is_back_the_silence_counts(house: Watched) -> None:
    server_was_away(house)
    house.wait(3 * MINUTE_S)
    assert (house.state, house.types) == ("lost", ["opened"])
