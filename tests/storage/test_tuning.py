"""Parameters of detectors: tried on stored runs, switched on, and in force from there on."""

from __future__ import annotations

import pytest

from monitor.clock import FakeClock
from monitor.domain.tuning import Tuning
from monitor.errors import Conflict, NotFound, UnknownFilter
from monitor.services.detection import Detection
from monitor.services.ingest import Ingest
from monitor.services.tuning import Tuner
from monitor.storage.base import Database
from tests.fixtures.batches import batch, body, opening
from tests.fixtures.house import House
from tests.unit.test_answers_drift import answers
from trainer_hooks.wire import Batch, Cell, Phase


class Judged(House):
    """The house with the judges that are shipped, fed by the door trainers use."""

    def restart(self) -> None:
        super().restart()
        self.seqs: dict[str, int] = getattr(self, "seqs", {})
        self.ingest = Ingest(self.database, self.clock)
        self.detection = Detection(
            self.database, self.clock, f"real-{self._starts}", lease_s=0.0, snapshot_every_s=60.0
        )

    def train(self, run: str, steps: int, repeats: float = 0.08) -> None:
        """So many more steps, a second each."""
        first = self._steps.get(run, 0) + 1
        self._steps[run] = first + steps - 1
        seq = self.seqs[run] = self.seqs.get(run, -1) + 1
        columns: dict[str, list[Cell]] = {
            "repeat_share": [repeats] * steps,
            "loss/train": [2.0] * steps,
        }
        numbers = range(first, first + steps)
        records = opening(run, first_step=1) if seq == 0 else []
        made = batch(run, seq, numbers, columns=columns, records=records, at=self.clock())
        self.ingest.accept(body(made))
        self.clock.advance(float(steps))
        self.settle()

    def severities(self, run: str) -> list[str]:
        return [one.severity for one in self.alerts(run) if one.detector == "stale_data"]


@pytest.fixture
def house(database: Database) -> Judged:
    return Judged(database, FakeClock(1_800_000_000.0))


@pytest.fixture
def tuner(house: Judged) -> Tuner:
    return Tuner(house.database, house.clock)


def test_what_a_change_would_have_done_is_told_and_changes_nothing(
    house: Judged, tuner: Tuner
) -> None:
    house.train("a", 160)
    house.train("b", 160, repeats=0.0)
    before = len(house.sent)
    found = tuner.preview("stale_data", {"repeat_share": "0.2"})
    assert {one.run: len(one.before.alerts) for one in found.runs} == {"a": 1, "b": 0}
    loud = {
        one.run: [[alert.severity for alert in side.alerts] for side in (one.before, one.after)]
        for one in found.runs
    }
    assert loud == {"a": [["critical"], ["info"]], "b": [[], []]}
    assert found.left == ()
    house.train("a", 5)
    assert (house.severities("a"), len(house.sent)) == (["critical"], before)
    assert tuner.detectors()[0].changed_at is None


def test_a_replay_says_what_the_judge_said_at_the_time(house: Judged, tuner: Tuner) -> None:
    house.train("a", 140, repeats=0.0)
    house.train("a", 40)
    (one,) = tuner.preview("stale_data", {}, ["a"]).runs
    (live,) = house.alerts("a")
    (replayed,) = one.before.alerts
    assert (replayed.id, replayed.onset_step, replayed.opened_step) == (
        live.id, live.onset_step, live.opened_step,
    )  # fmt: skip
    assert one.after.alerts == one.before.alerts


def test_what_is_switched_on_judges_runs_under_way_new_ones_and_after_a_restart(
    house: Judged, tuner: Tuner
) -> None:
    house.train("a", 140, repeats=0.0)
    tuner.switch_on("stale_data", {"repeat_share": "0.2", "batches_seen": "20"}, "kim")
    house.train("a", 30)
    house.train("b", 160)
    assert (house.severities("a"), house.severities("b")) == (["info"], ["info"])
    assert "opened" not in house.types  # nobody is told of an information
    house.restart()  # no snapshot is a minute old: all is replayed from the log
    house.train("c", 160)
    house.train("a", 30)
    assert (house.severities("a"), house.severities("c")) == (["info"], ["info"])
    house.wait(90.0)
    house.train("a", 1)
    house.restart()  # and now from the snapshot
    house.train("a", 30)
    assert house.severities("a") == ["info"]
    held = next(one for one in tuner.detectors() if one.name == "stale_data")
    assert {one.name: one.value for one in held.params if one.value != one.shipped} == {
        "repeat_share": "0.2"
    }
    assert (held.changed_at, held.by) == (pytest.approx(house.clock(), abs=900.0), "kim")


def test_as_shipped_again(house: Judged, tuner: Tuner) -> None:
    tuner.switch_on("stale_data", {"repeat_share": "0.2"}, "kim")
    house.train("a", 160)
    assert house.severities("a") == ["info"]
    tuner.switch_on("stale_data", {}, "kim")
    house.train("a", 40)
    assert house.severities("a") == ["critical"]
    (one,) = tuner.preview("stale_data", {"repeat_share": "0.2"}).runs
    assert [[alert.severity for alert in side.alerts] for side in (one.before, one.after)] == [
        ["critical"], ["info"],
    ]  # fmt: skip


def test_parameters_of_an_older_program_are_left_out(house: Judged) -> None:
    held = {"repeat_share": "0.2", "gone": "1", "batches_bad": "lots"}
    house.database.write(lambda uow: uow.tunings.save(Tuning("stale_data", held)))
    house.database.write(lambda uow: uow.tunings.save(Tuning("no_such_judge", {"x": "1"})))
    house.train("a", 160)
    assert house.severities("a") == ["info"]


def test_a_person_who_said_that_it_was_fine_is_counted(house: Judged, tuner: Tuner) -> None:
    house.train("a", 160)
    (alert,) = house.alerts("a")
    house.database.write(
        lambda uow: uow.log.append_note(
            "a", "resolve", {"alert": alert.id, "by": "kim", "was_fine": True}, at=house.clock()
        )
    )
    house.settle()
    (one,) = tuner.preview("stale_data", {"batches_bad": "6"}).runs
    assert [one.before.was_fine(alert) for alert in one.before.alerts] == [True]
    assert [one.after.was_fine(alert) for alert in one.after.alerts] == [True]


def test_what_cannot_be_is_refused(house: Judged, tuner: Tuner) -> None:
    with pytest.raises(NotFound):
        tuner.preview("nothing", {})
    with pytest.raises(NotFound):
        tuner.preview("stale_data", {}, ["no-such-run"])
    for wrong in ({"nothing": "1"}, {"batches_bad": "0"}):
        with pytest.raises(UnknownFilter):
            tuner.preview("stale_data", wrong)
        with pytest.raises(UnknownFilter):
            tuner.switch_on("stale_data", wrong, "")
    with house.database.read() as uow:
        assert uow.tunings.all() == {}


def test_one_replay_at_a_time_and_no_longer_than_it_may(house: Judged) -> None:
    for run in ("a", "b", "c"):
        house.train(run, 20)
    hurried = Tuner(house.database, house.clock, longest_s=0.0)
    found = hurried.preview("stale_data", {}, ["a", "b", "c"])
    assert ([one.run for one in found.runs], found.left) == (["a"], ("b", "c"))
    with hurried._replaying, pytest.raises(Conflict):
        hurried.preview("stale_data", {})


def test_answers_are_judged_again_at_the_steps_of_their_samplings(
    house: Judged, tuner: Tuner
) -> None:
    house.train("a", 150, repeats=0.0)
    for day in range(6):
        step = house._steps["a"]
        told = answers(step, length=60 - 9 * max(day - 1, 0), sure=0.45 + 0.07 * max(day - 1, 0))
        end = Phase(f"p{day}", "sampling", step, house.clock(), step, house.clock())
        seq = house.seqs["a"] = house.seqs["a"] + 1
        sent = Batch("a", "a1", "s0", seq, house.clock(), step, [], [*told, end])
        house.ingest.accept(body(sent))
        house.settle()
        house.train("a", 100, repeats=0.0)
    (live,) = [one for one in house.alerts("a") if one.detector == "answers_drift"]
    (one,) = tuner.preview("answers_drift", {"pairs": "13"}).runs
    (again,) = one.before.alerts
    assert (again.onset_step, again.opened_step, again.severity) == (
        live.onset_step, live.opened_step, live.severity,
    )  # fmt: skip
    assert one.after.alerts == ()  # thirteen pairs, where twelve prompts are asked
