"""What an alert has cost and what going back would lose: one count, by the trainer's clock."""

from __future__ import annotations

from dataclasses import replace

from monitor.domain.alert import Alert
from monitor.domain.plan import Checkpoint, hours_trained, toll
from monitor.domain.run import PAST_DATA, Attempt, Run
from tests.storage.test_delivery import an_alert

HOUR = 3600.0
SAVED = [Checkpoint(900, 9.0 * HOUR), Checkpoint(1100, 11.0 * HOUR)]


def alert(**changed: object) -> Alert:
    """Onset at step 1,000, ten hours after the run's begin (a step takes 36 s)."""
    base = replace(
        an_alert(), onset_step=1000, onset_at=10.0 * HOUR, opened_step=1010, last_step=1100,
        resolved_step=None, resolved_at=None,
    )  # fmt: skip
    return replace(base, **changed)  # type: ignore[arg-type]


def run(**changed: object) -> Run:
    base = Run(
        "r", "r", "pretrain", "running", 0.0, 12.0 * HOUR, {"price_per_hour": 8.0}, last_step=1200
    )  # fmt: skip
    return replace(base, **changed)  # type: ignore[arg-type]


def attempt(ordinal: int = 0, begin_h: float = 0.0, end_h: float | None = None) -> Attempt:
    ended = None if end_h is None else end_h * HOUR
    return Attempt("r", f"a{ordinal}", ordinal, 0, begin_h * HOUR, ended_at=ended)


def test_hours_tokens_and_money_since_the_onset_and_the_sound_work_before_it() -> None:
    cost = toll(alert(), run(), [attempt()], SAVED, tokens_per_step=1000.0)
    assert (cost.hours, cost.money, cost.tokens) == (2.0, 16.0, 200_000.0)
    assert cost.good == SAVED[0]  # the one after the onset is no good one
    assert (cost.lost_steps, cost.lost_hours) == (100, 1.0)


def test_it_grows_while_the_run_goes_on_and_stops_when_it_is_over() -> None:
    later = run(last_seen_at=15.0 * HOUR, last_step=1500)
    assert toll(alert(), later, [attempt()], SAVED).hours == 5.0
    over = alert(resolved_at=11.0 * HOUR, resolved_step=1100)
    cost = toll(over, later, [attempt()], SAVED, tokens_per_step=10.0)
    assert (cost.hours, cost.tokens) == (1.0, 1000.0)


def test_without_price_tokens_or_checkpoint_nothing_is_made_up() -> None:
    cost = toll(alert(), run(facts={}), [attempt()], [])
    assert (cost.money, cost.tokens, cost.good, cost.lost_steps, cost.lost_hours) == (None,) * 5


def test_hours_between_attempts_cost_nothing() -> None:
    spans = [attempt(0, 0.0, 10.5), attempt(1, 11.5)]
    assert toll(alert(), run(), spans, SAVED).hours == 1.0  # 10 to 10.5, and 11.5 to 12


def test_a_process_that_died_without_a_word_is_not_counted_twice() -> None:
    spans = [attempt(0, 0.0), attempt(1, 11.0)]
    assert toll(alert(), run(), spans, SAVED).hours == 2.0
    assert hours_trained(run(), spans) == 12.0


def test_the_trainers_clock_may_be_wrong() -> None:
    """The onset is told by the trainer's clock, an hour ahead; what was last seen by ours."""
    ahead = run(clock_skew_s=HOUR, last_seen_at=11.0 * HOUR)
    assert toll(alert(), ahead, [attempt()], SAVED).hours == 2.0


def test_of_past_data_the_hours_are_those_of_its_steps() -> None:
    """It came here in an instant, years later: our clock knows nothing of it."""
    facts = {"price_per_hour": 8.0, "config": {PAST_DATA: True}}
    past = run(facts=facts, last_seen_at=1.8e9, ended_at=1.8e9, state="finished")
    spans = [attempt(0, 0.0, 12.0)]
    assert toll(alert(last_step=1200), past, spans, SAVED).hours == 2.0
    over = alert(resolved_step=1100, resolved_at=1.8e9)
    assert toll(over, past, spans, SAVED).hours == 1.0


def test_of_a_run_that_is_gone_the_alert_alone_is_left() -> None:
    cost = toll(alert(opened_at=10.5 * HOUR), None, [], [])
    assert (cost.hours, cost.money) == (0.5, None)


def test_a_checkpoint_that_holds_an_earlier_trouble_is_not_the_good_one() -> None:
    """The loss jumps when fresh data come back; what was saved amid the stale data is no rescue."""
    saved = [Checkpoint(300, 3.0 * HOUR), Checkpoint(600, 6.0 * HOUR), Checkpoint(900, 9.0 * HOUR)]
    stale = alert(id="stale", severity="critical", onset_step=301, resolved_step=950)
    jump = alert(id="jump", severity="warning")
    found = toll(jump, run(), [attempt()], saved, alerts=[stale, jump])
    assert found.good == saved[0]
    assert (found.spoiled, found.lost_steps) == (2, 700)
    for harmless in (
        replace(stale, severity="warning"),
        replace(stale, resolved_reason="was_fine"),
        replace(stale, resolved_step=600),
    ):
        assert toll(jump, run(), [attempt()], saved, alerts=[harmless, jump]).good == saved[2]
    everything = replace(stale, onset_step=1)
    none = toll(jump, run(), [attempt()], saved, alerts=[everything, jump])
    assert (none.good, none.spoiled) == (None, 3)
