"""How little is told of how much: restarts, flapping, floods, outages, incidents."""

from __future__ import annotations

import pytest

from monitor.clock import FakeClock
from monitor.detectors.base import Hold
from monitor.services import alerting
from monitor.storage.base import Database
from tests.fixtures.house import House

MINUTE_S = 60.0
HOUR_S = 3600.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_800_000_000.0)


@pytest.fixture
def house(database: Database, clock: FakeClock) -> House:
    return House(database, clock)


# -- the server is restarted ----------------------------------------------------------------------


def test_a_restart_while_firing_tells_nothing_and_the_reminder_goes_on(house: House) -> None:
    house.say(stale_data=2)
    assert house.types == ["opened"]
    for _ in range(5):
        house.wait(HOUR_S, up=False)
        house.restart()
        house.say(stale_data=3)  # worse, but not yet six hours
    assert house.types == ["opened"]
    house.wait(HOUR_S + 1, up=False)
    house.restart()
    house.say(stale_data=3)
    assert house.types == ["opened", "reminder"]


def test_pending_forty_of_sixty_minutes_opens_twenty_after_the_restart(
    database: Database, clock: FakeClock
) -> None:
    house = House(database, clock, hold=Hold(k=1, m=1, calm=1, for_s=HOUR_S))
    house.say(non_finite=3)
    house.wait(40 * MINUTE_S)
    house.restart()
    house.wait(5 * HOUR_S, up=False)
    house.restart()
    house.wait(19 * MINUTE_S)
    assert house.alerts() == []
    house.wait(MINUTE_S)
    assert [alert.state for alert in house.alerts()] == ["firing"]
    assert house.types == ["opened"]


def test_what_was_queued_when_the_server_died_is_told_once(house: House, clock: FakeClock) -> None:
    house.delivery.run_once = lambda: False  # type: ignore[method-assign] # it dies before telling
    house.say(stale_data=3)
    assert house.types == []
    house.restart()
    house.settle()
    house.restart()
    house.settle()
    assert house.types == ["opened"]


# -- flapping and floods --------------------------------------------------------------------------


def test_fifty_starts_and_ends_in_a_minute_are_one_message_and_one_summary(house: House) -> None:
    for _ in range(50):
        house.say(stale_data=3)
        house.clock.advance(0.6)
        house.say(stale_data=0)
        house.clock.advance(0.6)
    assert len(house.alerts()) == 50
    assert house.types == ["opened"]
    house.wait(10 * MINUTE_S + 30, every_s=30.0)
    assert house.types == ["opened", "resolved"]
    assert "It came back 49 times meanwhile." in house.sent[1].text
    house.wait(2 * HOUR_S, every_s=600.0)
    assert len(house.sent) == 2


def test_still_open_at_the_end_of_the_window_it_says_how_often(house: House) -> None:
    for _ in range(10):
        house.say(stale_data=3)
        house.wait(1.0)
        house.say(stale_data=0)
        house.wait(1.0)
    house.say(stale_data=3)
    house.wait(10 * MINUTE_S + 30, every_s=30.0)
    assert house.types == ["opened", "opened"]
    assert "fired 9 times more in this run" in house.sent[1].text
    ends = [row.state for alert in house.alerts() for row in house.rows(alert.id)]
    assert set(ends) <= {"sent", "folded", "cancelled"}


def test_a_second_episode_an_hour_later_is_told(house: House) -> None:
    house.say(stale_data=3)
    house.wait(MINUTE_S)
    house.say(stale_data=0)
    house.wait(HOUR_S, every_s=300.0)
    house.say(stale_data=3)
    house.wait(MINUTE_S)
    assert house.types == ["opened", "resolved", "opened"]


def test_an_end_follows_within_seconds(house: House) -> None:
    house.say(stale_data=3)
    house.wait(MINUTE_S)
    house.say(stale_data=0)
    assert house.types == ["opened"]
    house.wait(15.0)
    assert house.types == ["opened", "resolved"]


def test_what_gets_more_severe_within_the_window_is_told_at_once(house: House) -> None:
    house.say(stale_data=2)
    house.say(stale_data=0)
    house.say(stale_data=3)
    assert house.types == ["opened", "opened"]


# -- one outage, one incident ---------------------------------------------------------------------


def test_ten_runs_hit_by_one_outage_are_one_message_that_lists_them(house: House) -> None:
    runs = [f"run-{number}" for number in range(10)]
    for run in runs:
        house.say(run, run_silent=2)
        house.wait(3.0, every_s=3.0)
    assert house.sent == []
    house.wait(MINUTE_S)
    (message,) = house.sent
    assert sorted(message.runs) == runs
    assert message.headline == "10 runs: run silent - warning"
    assert all(f"{run}: run silent since step 1" in message.text for run in runs)
    for run in runs:
        house.say(run, run_silent=0)
    house.wait(2 * MINUTE_S)
    assert house.types == ["opened", "resolved"]
    assert sorted(house.sent[1].runs) == runs
    assert house.sent[1].headline == "10 runs: run silent is over"


def test_one_that_came_back_within_the_wait_is_not_in_it(house: House) -> None:
    for run in ("a", "b", "c"):
        house.say(run, run_silent=2)
    house.say("b", run_silent=0)
    house.wait(2 * MINUTE_S)
    assert [sorted(one.runs) for one in house.sent] == [["a", "c"]]


def test_four_alerts_of_one_cause_are_one_push_that_lists_the_others(house: House) -> None:
    house.say(stale_data=3)
    for name in ("train_heldout_gap", "overconfidence", "loss_plateau"):
        house.wait(2 * MINUTE_S)
        house.say(**{name: 2})
    house.wait(HOUR_S, every_s=300.0)
    assert house.types == ["opened"]
    alerts = house.alerts()
    assert len(alerts) == 4
    assert {alert.incident for alert in alerts} == {alerts[0].id}
    told_in = {row.folded_into for alert in alerts[1:] for row in house.rows(alert.id)}
    assert told_in == {house.sent[0].id}


def test_an_incident_that_gets_more_severe_is_told_again_and_lists_what_it_is(house: House) -> None:
    house.say(overconfidence=2)
    house.say(stale_data=3)
    assert house.types == ["opened", "opened"]
    assert "One incident, 2 alerts; also overconfidence since step 1." in house.sent[1].text


def test_when_the_cause_is_over_the_end_says_what_is_still_open(house: House) -> None:
    house.say(stale_data=3)
    house.say(loss_plateau=2)
    house.say(stale_data=0)
    house.wait(MINUTE_S)
    assert house.types == ["opened", "resolved"]
    assert "Still open: loss plateau since step 2." in house.sent[1].text
    house.say(loss_plateau=0)
    house.wait(MINUTE_S)
    assert house.types == ["opened", "resolved"]  # it was never told of by itself


def test_alerts_without_a_common_cause_are_told_each(house: House) -> None:
    house.say(stale_data=3)
    house.say(run_silent=2)
    house.wait(2 * MINUTE_S)
    assert house.types == ["opened", "opened"]


def test_closed_by_hand_and_run_ended(house: House, database: Database, clock: FakeClock) -> None:
    house.say(stale_data=3)
    (alert,) = house.alerts()
    alerting.resolve(database, alert.id, by="ada", note="", was_fine=True, at=clock())
    house.wait(MINUTE_S)
    assert house.types == ["opened", "resolved"]
    assert house.sent[1].headline == "run: stale data is over - closed by hand: this was fine"
    with database.read() as uow:
        assert [one.id for one in uow.alerts.labelled("run")] == [alert.id]


def test_an_opening_that_may_be_why_the_run_ended_still_goes_out(house: House) -> None:
    house.say("a", run_silent=2)
    house.end("a", "failed")
    house.wait(2 * MINUTE_S)
    assert house.types == ["opened"]
