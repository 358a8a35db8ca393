"""Silences, quiet hours and the morning's digest, on a clock that stands where a test wants it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from monitor.clock import FakeClock
from monitor.domain.silence import Silence
from monitor.services.digest import Digest
from monitor.services.gates import Gates
from monitor.services.latest import Latest
from monitor.services.overview import Overview
from monitor.services.silencing import add_silence, remove_silence
from monitor.storage.base import Channel, Database
from tests.fixtures.house import House

HOUR_S = 3600.0
AMSTERDAM = "Europe/Amsterdam"


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def asleep(house: House, seconds: float) -> None:
    house.wait(seconds, every_s=900.0)


# -- silences -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evening", "morning"),
    [
        ("2026-03-28T21:00", "2026-03-29T05:00"),
        ("2026-10-24T20:00", "2026-10-25T06:00"),
    ],
)
def test_what_opens_at_night_is_told_once_in_the_morning_if_it_is_still_open(
    database: Database, evening: str, morning: str
) -> None:
    clock = FakeClock(utc(evening) + 60.0)
    night = Silence("", begin="22:00", end="07:00", zone=AMSTERDAM)
    add_silence(database, night, at=clock() - HOUR_S)
    house = House(database, clock)
    house.say("lasting", stale_data=3)
    house.say("passing", stale_data=3)
    asleep(house, HOUR_S)
    house.say("passing", stale_data=0)
    asleep(house, utc(morning) - 1.0 - clock())
    assert house.sent == []
    house.restart()
    house.wait(5.0, every_s=1.0)
    assert [one.runs for one in house.sent] == [("lasting",)]
    asleep(house, 4 * HOUR_S)
    assert house.types == ["opened"]


def test_a_silence_ends_early_and_covers_only_what_it_names(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T12:00"))
    house = House(database, clock)
    for silence in (
        Silence("", run="a", detector="stale_data", starts_at=clock(), ends_at=clock() + HOUR_S),
        Silence("", tag="sweep", starts_at=clock(), ends_at=clock() + HOUR_S),
    ):
        made = add_silence(database, silence, at=clock())
    house.say("a", stale_data=3)
    house.say("a", run_silent=2)
    house.say("tagged", facts={"tags": ["sweep"]}, non_finite=3)
    house.wait(120.0)
    assert [one.headline.split(" since")[0] for one in house.sent] == ["a: run silent"]
    remove_silence(database, made.id, at=clock())
    house.wait(15.0)
    assert [one.runs for one in house.sent] == [("a",), ("tagged",)]


def test_the_end_of_what_was_told_waits_too(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T12:00"))
    house = House(database, clock)
    house.say(stale_data=3)
    add_silence(database, Silence("", starts_at=clock(), ends_at=clock() + HOUR_S), at=clock())
    house.say(stale_data=0)
    asleep(house, HOUR_S - 60.0)
    assert house.types == ["opened"]
    house.wait(90.0)
    assert house.types == ["opened", "resolved"]


# -- at night -------------------------------------------------------------------------------------


def test_at_night_only_criticals_are_pushed(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T23:00"))
    house = House(database, clock, gates=Gates(quiet_hours="22:00-07:00"))
    house.say("w", facts={"zone": "UTC"}, loss_plateau=2)
    house.say("c", facts={"zone": "UTC"}, loss_plateau=3)
    assert [one.runs for one in house.sent] == [("c",)]
    asleep(house, 9 * HOUR_S)
    assert [one.runs for one in house.sent] == [("c",), ("w",)]
    assert house.sent[1].at == pytest.approx(utc("2026-12-01T07:00"), abs=901.0)


def test_what_gets_critical_at_night_is_pushed_then(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T23:00"))
    house = House(database, clock, gates=Gates(quiet_hours="22:00-07:00", digest_at="08:00"))
    house.say(loss_plateau=2)
    house.wait(60.0)
    assert house.sent == []
    house.say(loss_plateau=3)
    assert house.types == ["opened"]


def test_a_channel_has_a_night_of_its_own(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T23:00"))
    channels = [House.channel("day"), House.channel("sleeper", quiet_hours="22:00-07:00")]
    house = House(database, clock, channels=channels)
    house.say(loss_plateau=2)
    assert len(house.sent) == 1


def test_a_route_hears_when_it_gets_severe_enough(database: Database) -> None:
    pager = Channel(
        "pager", "pager", "generic",
        {**House.channel("pager").config, "route": {"severity": "critical", "tags": []}},
    )  # fmt: skip
    house = House(database, FakeClock(utc("2026-11-30T12:00")), channels=[pager])
    house.say(loss_plateau=2)
    assert house.sent == []
    house.say(loss_plateau=3)
    house.say(loss_plateau=0)
    house.wait(30.0)
    assert house.types == ["opened", "resolved"]


def test_only_runs_with_the_tag_ring(database: Database) -> None:
    route = {"severity": "warning", "tags": ["night", "big"]}
    pager = Channel("pager", "pager", "generic", {**House.channel("pager").config, "route": route})
    channels = [pager, House.channel("all")]
    house = House(database, FakeClock(utc("2026-11-30T12:00")), channels=channels)
    house.say("plain", stale_data=3)
    house.say("sweep", facts={"tags": ["sweep"]}, stale_data=3)
    house.say("big", facts={"tags": ["lm", "big"]}, stale_data=3)
    assert [one.runs for one in house.sent] == [("plain",), ("sweep",), ("big",), ("big",)]
    with database.read() as uow:
        to_pager = [
            row.state
            for run in ("plain", "sweep", "big")
            for alert in uow.alerts.of_run(run)
            for row, _ in uow.outbox.of_alert(alert.id)
            if row.channel == "pager"
        ]
    assert to_pager.count("sent") == 1
    for run in ("plain", "sweep", "big"):
        house.say(run, stale_data=0)
    house.wait(30.0)
    ends = [sorted(one.runs) for one in house.sent if one.type == "alert.resolved"]
    assert sorted(ends) == [["big"], ["big", "plain", "sweep"]]


# -- the digest -----------------------------------------------------------------------------------


def with_digest(database: Database, clock: FakeClock) -> tuple[House, Digest]:
    overview = Overview(Latest(), clock)
    digest = Digest(database, clock, overview, "08:00", "http://box:8765")
    gates = Gates(quiet_hours="22:00-07:00", digest_at="08:00")
    return House(database, clock, gates=gates, digest=digest.words), digest


def test_the_morning_tells_what_the_night_kept_in_one_message(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T22:30"))
    house, digest = with_digest(database, clock)
    facts = {"zone": AMSTERDAM, "price_per_hour": 2.0, "planned_steps": 100}
    house.say("big", facts=facts, loss_plateau=2, loss__train=2.5)
    house.say("small", facts={"zone": AMSTERDAM}, loss__train=1.5)
    asleep(house, utc("2026-12-01T06:59") - clock())
    assert digest.run_once() == 0
    assert house.sent == []
    asleep(house, 120.0)
    for _ in range(3):  # asked again, and by another server: still one
        digest.run_once()
        Digest(database, clock, digest.overview, "08:00").run_once()
        house.settle()
    house.restart()
    asleep(house, 2 * HOUR_S)
    assert house.types == ["digest"]
    said = house.sent[0]
    assert said.headline == "Tuesday 1 December: 2 runs, 1 needs a look"
    assert "Open: loss plateau since step 1 (warning)." in said.text
    assert "Step 1 of 100" in said.text
    assert "$0.00 so far" in said.text
    (row,) = house.rows(house.alerts("big")[0].id)
    assert (row.state, row.folded_into) == ("folded", said.id)


def test_the_end_of_what_the_digest_told_is_told(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T22:30"))
    house, digest = with_digest(database, clock)
    house.say("run", facts={"zone": "UTC"}, loss_plateau=2)
    asleep(house, utc("2026-12-01T08:00") - clock())
    digest.run_once()
    house.settle()
    house.say("run", loss_plateau=0)
    house.wait(30.0)
    assert house.types == ["digest", "resolved"]


def test_what_came_and_went_at_night_is_nobodys_message(database: Database) -> None:
    clock = FakeClock(utc("2026-11-30T22:30"))
    house, digest = with_digest(database, clock)
    house.say("run", facts={"zone": "UTC"}, loss_plateau=2)
    house.say("run", loss_plateau=0)
    asleep(house, utc("2026-12-01T08:00") - clock())
    digest.run_once()
    house.settle()
    assert house.types == ["digest"]
    assert "all is well" in house.sent[0].headline


def test_no_digest_of_runs_that_began_after_it_or_are_long_over(database: Database) -> None:
    clock = FakeClock(utc("2026-12-01T08:30"))
    house, digest = with_digest(database, clock)
    house.say("new", facts={"zone": "UTC"}, loss__train=1.0)
    assert digest.run_once() == 0
    assert digest.compose is not None
    with database.read() as uow:
        assert digest.compose(uow, "UTC", clock() + 1.0) is not None
        assert digest.compose(uow, AMSTERDAM, clock() + 1.0) is None
