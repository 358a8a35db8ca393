"""Every cell of the transition table, and the counts behind it."""

from __future__ import annotations

from typing import get_args

import pytest

from monitor.domain.alert import (
    OPEN_STATES,
    TRANSITIONS,
    Hysteresis,
    Track,
    TrackInput,
    TrackState,
    advance,
)

STATES: tuple[TrackState, ...] = get_args(TrackState)
INPUTS: tuple[TrackInput, ...] = get_args(TrackInput)

# What is to happen when one judgement is enough to open and one calm to close.
QUICK = {
    "quiet": ("firing", "quiet", "quiet", "quiet", "quiet", "quiet", "quiet", "quiet"),
    "pending": ("firing", "quiet", "pending", "firing", "pending", "quiet", "quiet", "quiet"),
    "firing": (
        "firing", "resolved", "firing", "firing", "acknowledged", "resolved", "resolved",
        "resolved",
    ),
    "acknowledged": (
        "acknowledged", "resolved", "acknowledged", "acknowledged", "acknowledged", "resolved",
        "resolved", "resolved",
    ),
    "resolved": (
        "firing", "resolved", "resolved", "resolved", "resolved", "resolved", "resolved",
        "resolved",
    ),
}  # fmt: skip
# And when it takes more of them.
SLOW = {
    **QUICK,
    "quiet": ("pending", *QUICK["quiet"][1:]),
    "pending": ("pending", "pending", "pending", "pending", *QUICK["pending"][4:]),
    "firing": ("firing", "firing", *QUICK["firing"][2:]),
    "acknowledged": ("acknowledged", "acknowledged", *QUICK["acknowledged"][2:]),
    "resolved": ("pending", *QUICK["resolved"][1:]),
}


def track_in(state: TrackState) -> Track:
    recent = (True,) if state in ("pending", *OPEN_STATES) else ()
    return Track(state=state, episode=1, recent=recent)


def test_the_table_has_a_cell_for_every_state_and_input() -> None:
    assert set(TRANSITIONS) == {(state, given) for state in STATES for given in INPUTS}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("given", INPUTS)
def test_each_cell_when_one_judgement_is_enough(state: TrackState, given: TrackInput) -> None:
    after = advance(track_in(state), given, Hysteresis(k=1, m=1, calm=1))
    assert after.state == QUICK[state][INPUTS.index(given)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("given", INPUTS)
def test_each_cell_when_it_takes_more(state: TrackState, given: TrackInput) -> None:
    after = advance(track_in(state), given, Hysteresis(k=3, m=5, calm=4))
    assert after.state == SLOW[state][INPUTS.index(given)]


def run(word: str, hold: Hysteresis, track: Track | None = None) -> Track:
    """b: bad, c: calm, ?: cannot tell, a: acknowledge, r: resolve, s: supersede, e: run end."""
    names: dict[str, TrackInput] = {
        "b": "bad", "c": "calm", "?": "cannot_tell", "a": "acknowledge", "r": "resolve",
        "s": "supersede", "e": "run_end",
    }  # fmt: skip
    track = track or Track()
    for letter in word:
        track = advance(track, names[letter], hold)
    return track


def test_k_of_the_last_m_open_it() -> None:
    hold = Hysteresis(k=3, m=5, calm=2)
    assert run("bccb", hold).state == "pending"
    assert run("bcbcb", hold).state == "firing"
    assert run("bccccbb", hold).state == "pending"


def test_a_pending_subject_without_bad_judgements_left_is_quiet_again() -> None:
    assert run("bccccc", Hysteresis(k=3, m=5)).state == "quiet"


def test_not_being_able_to_tell_neither_opens_nor_closes() -> None:
    hold = Hysteresis(k=2, m=2, calm=2)
    assert run("b????b", hold).state == "firing"
    assert run("bbc???", hold).state == "firing"
    assert run("bbc?c", hold).state == "resolved"


def test_calm_must_come_in_a_row() -> None:
    hold = Hysteresis(k=1, m=1, calm=3)
    assert run("bccbcc", hold).state == "firing"
    assert run("bccbccc", hold).state == "resolved"


def test_a_second_episode_is_counted_and_needs_its_own_judgements() -> None:
    hold = Hysteresis(k=2, m=3, calm=1)
    first = run("bb", hold)
    assert first.episode == 1
    ended = run("c", hold, first)
    assert run("b", hold, ended).state == "pending"
    assert run("bb", hold, ended) == Track("firing", 2, (True, True), 0)


def test_acknowledged_goes_on_and_resolves_by_itself() -> None:
    hold = Hysteresis(k=1, m=1, calm=2)
    assert run("babb", hold).state == "acknowledged"
    assert run("babcc", hold).state == "resolved"


def test_closed_by_a_person_it_stays_closed_while_the_condition_goes_on() -> None:
    hold = Hysteresis(k=1, m=1, calm=2)
    closed = run("br", hold)
    assert closed.state == "resolved"
    assert run("bbbbcbbb", hold, closed).state == "resolved"
    assert run("bbccb", hold, closed).episode == 2


def test_flapping_about_a_threshold_is_one_episode() -> None:
    assert run("bc" * 500, Hysteresis(k=1, m=1, calm=3)).episode == 1


MINUTE_S = 60.0


def ticked(track: Track, hold: Hysteresis, minutes: int) -> Track:
    for _ in range(4 * minutes):
        track = advance(track, "tick", hold, MINUTE_S / 4)
    return track


def test_pending_for_a_time_counts_ticks_only() -> None:
    """Pending for 40 of 60 minutes; however long the server is down, it takes 20 more."""
    hold = Hysteresis(k=1, m=1, for_s=60 * MINUTE_S)
    waiting = ticked(run("b", hold), hold, 40)
    assert waiting.state == "pending"
    assert ticked(waiting, hold, 19).state == "pending"
    assert ticked(waiting, hold, 20).state == "firing"
    assert run("bbbbb", hold, waiting).state == "pending"


def test_calm_while_pending_begins_the_wait_anew() -> None:
    hold = Hysteresis(k=1, m=1, for_s=10 * MINUTE_S)
    again = run("cb", hold, ticked(run("b", hold), hold, 9))
    assert (again.state, again.waited_s) == ("pending", 0.0)


def test_closing_takes_the_hold_time_without_a_bad_one() -> None:
    hold = Hysteresis(k=1, m=1, calm=1, calm_s=5 * MINUTE_S)
    nearly = ticked(run("bc", hold), hold, 4)
    assert nearly.state == "firing"
    assert ticked(run("bc", hold, nearly), hold, 4).state == "firing"
    assert ticked(nearly, hold, 1).state == "resolved"
    assert ticked(run("b", hold), hold, 600).state == "firing"
