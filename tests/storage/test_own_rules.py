"""Rules people write, from the values to the messages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from monitor.clock import FakeClock
from monitor.domain.rule import NO_DATA_POINTS, Rule, problems, read, slug
from monitor.errors import NotFound, UnknownFilter
from monitor.services.detection import doubts
from monitor.services.silencing import remove_rule, save_rule
from monitor.storage.base import Database
from tests.fixtures.house import House

NAN = math.nan
GAP = [2.0] * 10 + [NAN] + [2.0] * 10
RULES = {
    "above": Rule("above", "high", "loss/train", value=1.9),
    "below": Rule("below", "low", "loss/train", direction="below", value=1.9),
    "mean": Rule("mean", "high mean", "loss/train", value=1.9, window=5),
    "trend": Rule("trend", "rising", "loss/train", kind="trend", value=0.1, window=5),
}


def readings(rule: Rule, values: Sequence[float]) -> list[str]:
    steps = list(range(len(values)))
    return [
        read(rule, steps[: i + 1][-rule.span :], values[: i + 1][-rule.span :]).reading
        for i in range(len(values))
    ]


@pytest.mark.parametrize("name", RULES)
def test_a_nan_neither_satisfies_nor_resolves_nor_spoils_a_rule(name: str) -> None:
    rule = RULES[name]
    said = readings(rule, GAP)
    usual = readings(rule, [2.0] * 21)
    assert said[10] == "between"
    assert said[:10] + said[11:] == usual[:10] + usual[11:]
    assert set(usual[5:]) == {{"above": "bad", "mean": "bad"}.get(name, "calm")}


def test_means_leave_it_out_and_say_how_many() -> None:
    found = read(RULES["mean"], range(5), [2.0, NAN, 2.0, math.inf, 2.0])
    assert (found.reading, found.value, found.used, found.skipped) == ("bad", 2.0, 3, 2)
    few = read(RULES["mean"], range(5), [NAN, NAN, NAN, 2.0, 2.0])
    assert few.reading == "between"


@pytest.mark.parametrize("name", RULES)
def test_twenty_of_twenty_that_are_not_finite_are_no_data(name: str) -> None:
    said = readings(RULES[name], [NAN] * NO_DATA_POINTS)
    assert said == ["between"] * (NO_DATA_POINTS - 1) + ["no_data"]


def test_a_trend_is_the_change_per_thousand_steps() -> None:
    steps = list(range(0, 1000, 20))
    values = [2.0 + 0.0005 * step for step in steps]
    found = read(Rule("t", "t", "x", kind="trend", value=0.4, window=50), steps, values)
    assert (found.reading, found.value) == ("bad", pytest.approx(0.5))


def test_ids_and_what_is_wrong() -> None:
    assert slug("Loss too high!") == "loss-too-high"
    assert problems(Rule("a", "A", "loss/train", value=10.0, clear=9.0)) == []
    assert problems(Rule("A!", "A", "", value=NAN, clear=11.0, window=0, k=2, m=1))
    assert problems(Rule("a", "A", "x", value=10.0, clear=11.0)) == [
        "It must clear on the good side of its value."
    ]


# -- in a run -------------------------------------------------------------------------------------

HIGH = Rule(
    "high", "loss too high", "loss/train", value=10.0, clear=9.0, calm=1, calm_s=60.0,
)  # fmt: skip


@pytest.fixture
def house(database: Database) -> House:
    return House(database, FakeClock(1_800_000_000.0))


def test_flapping_round_a_threshold_for_a_thousand_steps(house: House, database: Database) -> None:
    save_rule(database, HIGH, at=house.clock())
    for step in range(1000):
        house.clock.advance(1.0)
        if step % 15 == 0:
            house._tick()
        house.say(loss__train=10.1 if step % 2 else 9.9)
    assert house.types == ["opened"]
    for _ in range(10):
        house.say(loss__train=8.9)
        house.wait(15.0)
    assert house.types == ["opened", "resolved"]
    house.wait(3600.0, every_s=600.0)
    house.say(loss__train=10.1)
    assert house.types == ["opened", "resolved", "opened"]
    assert house.sent[0].headline.startswith("run: loss too high since step 2 ")
    assert "loss/train is 10.1, above 10 since step 2." in house.sent[0].text


def test_nan_opens_nothing_and_closes_nothing(house: House, database: Database) -> None:
    save_rule(database, Rule("high", "high", "loss/train", value=10.0), at=house.clock())
    for value in (9.0, NAN, NAN, 11.0, *[NAN] * 30):
        house.say(loss__train=value)
    assert [alert.state for alert in house.alerts()] == ["firing"]
    house.detection.close()
    with database.read() as uow:
        assert doubts(uow, "run") == {
            "user_rule high: loss/train": "loss/train: no data, 20 of 20 points are not finite"
        }


def test_a_rule_made_during_a_run_judges_from_then_on_and_survives_restarts(
    house: House, database: Database
) -> None:
    house.say(loss__train=11.0)
    save_rule(database, Rule("high", "high", "loss/*", value=10.0, calm=2), at=house.clock())
    house.restart()
    house.say(loss__train=12.0, loss__probe=9.0)
    (alert,) = house.alerts()
    assert (alert.detector, alert.subject, alert.onset_step) == (
        "user_rule", "high: loss/train", 2,
    )  # fmt: skip
    house.restart()
    house.say(loss__train=9.0)
    house.restart()
    house.say(loss__train=9.0)
    assert [one.state for one in house.alerts()] == ["resolved"]


def test_a_rule_that_is_taken_away_closes_its_alerts(house: House, database: Database) -> None:
    save_rule(database, Rule("high", "high", "loss/train", value=10.0), at=house.clock())
    house.say(loss__train=11.0)
    remove_rule(database, "high", at=house.clock())
    house.settle()
    (alert,) = house.alerts()
    assert (alert.state, alert.resolved_reason) == ("resolved", "rule_changed")
    with pytest.raises(NotFound):
        remove_rule(database, "high", at=house.clock())


def test_rules_by_run_and_tag(house: House, database: Database) -> None:
    save_rule(database, Rule("r", "r", "loss/train", value=1.0, run="big-*"), at=0.0)
    save_rule(database, Rule("t", "t", "loss/train", value=1.0, tag="night"), at=0.0)
    for run, tags in (("big-1", []), ("small", ["night"]), ("other", [])):
        house.say(run, facts={"tags": tags}, loss__train=2.0)
    found = {run: [a.subject for a in house.alerts(run)] for run in ("big-1", "small", "other")}
    assert found == {"big-1": ["r: loss/train"], "small": ["t: loss/train"], "other": []}


def test_pending_for_minutes_of_ticks(house: House, database: Database) -> None:
    rule = Rule("slow", "slow", "tokens_per_s", direction="below", value=100.0, for_s=600.0)
    save_rule(database, rule, at=house.clock())
    house.say(tokens_per_s=50.0)
    house.wait(585.0)
    assert house.alerts() == []
    house.wait(15.0)
    assert [alert.title for alert in house.alerts()] == ["slow"]


def test_a_rule_that_cannot_be_is_refused(database: Database) -> None:
    with pytest.raises(UnknownFilter, match="finite"):
        save_rule(database, Rule("a", "A", "x", value=NAN), at=0.0)
