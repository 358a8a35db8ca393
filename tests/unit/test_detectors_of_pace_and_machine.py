"""Judges of pace, plan, checkpoints, disks and cards, on small made-up series."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from monitor.detectors.base import Detector, StepEvent, StepFrame, Verdict
from monitor.detectors.elapsed import Elapsed
from tests.unit.test_detectors_of_data_and_updates import bad, evidence, judged, made

HOUR = 3600.0
GIB = float(1 << 30)
Values = dict[str, float]


def paced(
    steps: int, step_s: Callable[[int], float], more: Callable[[int], Values] = lambda s: {},
    tokens: float = 1e6, noise: float = 0.01, cut: int | None = None,
) -> list[StepFrame]:  # fmt: skip
    """Frames whose times follow the steps; ``cut``: from this step on another attempt."""
    draw, t, out = random.Random(11), 0.0, []
    for step in range(steps):
        took = step_s(step) * (1.0 + draw.gauss(0.0, noise))
        t += took
        attempt = "a1" if cut is not None and step >= cut else "a0"
        values = {"step_s": took, "tokens_per_s": tokens / took, **more(step)}
        out.append(StepFrame(attempt, int(attempt == "a1"), step, t, values))
    return out


def loud(verdicts: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in bad(verdicts) if verdict.severity != "info"]


# -- throughput_drop ------------------------------------------------------------------------------


def test_a_long_run_is_judged_against_its_best_half_hour_of_the_first_two() -> None:
    given = paced(9000, lambda s: 2.0 if s < 5000 else 2.3)
    first = loud(judged(made("throughput_drop"), given))[0]
    assert 4950 <= (evidence(first).onset_step or 0) <= 5050  # to within a block
    assert first.at - 5000 * 2.0 >= 250.0  # not before it has lasted about five minutes
    assert first.step <= 5250
    assert "13 % below" in evidence(first).summary


def test_a_card_that_was_faster_when_cold_is_no_drop() -> None:
    given = paced(9000, lambda s: 1.8 if s < 600 else 2.0)
    assert bad(judged(made("throughput_drop"), given)) == []


def test_noise_and_single_long_steps_are_no_drop() -> None:
    slow = paced(9000, lambda s: 2.0 + (25.0 if s % 250 == 0 else 0.0), noise=0.05)
    assert bad(judged(made("throughput_drop"), slow)) == []


def test_a_ramp_of_the_batch_begins_a_new_reference() -> None:
    def frames() -> list[StepFrame]:
        out, t = [], 0.0
        for step in range(12_000):
            took, tokens = (2.0, 1e6) if step < 5000 else (5.0, 2e6)
            t += took
            values = {"step_s": took, "tokens_per_s": tokens / took}
            out.append(StepFrame("a0", 0, step, t, values))
        return out

    assert bad(judged(made("throughput_drop"), frames())) == []


def test_before_there_is_a_reference_it_says_what_it_needs() -> None:
    verdicts = judged(made("throughput_drop"), paced(400, lambda s: 0.1))
    (unsure,) = [v for v in verdicts if v.judgement == "cannot_tell"]
    assert unsure.evidence is not None
    assert "planned_steps" in unsure.evidence.summary


def test_the_loader_is_named_where_its_share_grew() -> None:
    given = paced(
        6000, lambda s: 0.5 if s < 3000 else 0.6,
        more=lambda s: {"data_wait_share": 0.01 if s < 3000 else 0.17},
    )  # fmt: skip
    first = loud(judged(made("throughput_drop", planned_steps=6000), given))[0]
    assert "the loader" in evidence(first).causes[0].text


def test_a_restart_on_the_same_hardware_must_come_up_to_the_old_pace() -> None:
    given = paced(6000, lambda s: 0.5 if s < 3000 else 0.6, cut=3000)
    first = loud(judged(made("throughput_drop", planned_steps=6000), given))[0]
    assert "what changed with the restart" in evidence(first).causes[0].text


# -- behind_plan ----------------------------------------------------------------------------------


def test_a_run_that_will_end_late_says_when_and_what_it_costs() -> None:
    facts = {"planned_steps": 4000, "price_per_hour": 32.0}
    given = paced(3000, lambda s: 20.0 if s < 1500 else 30.0)
    first = loud(judged(made("behind_plan", **facts), given))[0]
    assert 1500 < first.step <= 2100
    assert 1300 <= (evidence(first).onset_step or 0) <= 1700
    assert "USD dearer" in evidence(first).summary
    assert "promised by its first tenth" in evidence(first).summary


def test_planned_hours_win_over_the_runs_own_promise() -> None:
    facts = {"planned_steps": 4000, "config": {"planned_hours": 15.0}}
    first = loud(judged(made("behind_plan", **facts), paced(2000, lambda s: 20.0)))[0]
    assert "15 h" in evidence(first).summary  # 22 h where 15 were planned
    assert loud(
        judged(made("behind_plan", **facts | {"config": {"planned_hours": 23.0}}),
               paced(4000, lambda s: 20.0))
    ) == []  # fmt: skip


def test_time_between_attempts_is_in_the_bill() -> None:
    given = paced(3000, lambda s: 20.0 + (6 * HOUR if s == 1500 else 0.0), cut=1500)
    first = loud(judged(made("behind_plan", planned_steps=4000), given))[0]
    assert first.step <= 1600
    assert "restarts" in [cause.text for cause in evidence(first).causes]


def test_without_a_plan_nothing_is_promised() -> None:
    assert judged(made("behind_plan"), paced(3000, lambda s: 20.0)) == []


def test_an_even_run_stays_in_time() -> None:
    given = paced(4000, lambda s: 20.0, noise=0.2)
    assert bad(judged(made("behind_plan", planned_steps=4000), given)) == []


def test_a_clock_that_leaps_costs_no_time() -> None:
    elapsed = Elapsed()
    times = [100.0, 110.0, 5.0, 15.0, 15.0 + 365 * 86_400, 25.0 + 365 * 86_400]
    assert [elapsed.see(t) for t in times] == [0.0, 10.0, 10.0, 20.0, 20.0, 30.0]


# -- checkpoint_age -------------------------------------------------------------------------------


def saving(steps: int, at: Callable[[int], bool], ends: Callable[[int], bool]) -> list[StepFrame]:
    given = paced(steps, lambda s: 2.0)
    for step, frame in enumerate(given):
        if at(step):
            marks = [StepEvent("phase", "checkpoint", frame.t)]
            marks += [StepEvent("phase_end", "checkpoint", frame.t)] if ends(step) else []
            given[step] = StepFrame("a0", 0, step, frame.t, frame.values, tuple(marks))
    return given


def test_a_checkpoint_that_is_overdue() -> None:
    given = saving(4000, lambda s: s % 500 == 0 and 0 < s <= 2000, lambda s: True)
    first = bad(judged(made("checkpoint_age", price_per_hour=36.0), given))[0]
    assert (first.severity, first.step) == ("warning", 3251)
    assert evidence(first).onset_step == 2500
    assert "25.0" in evidence(first).summary  # 1,251 steps of 2 s at 36 an hour
    assert "interval was changed" in evidence(first).causes[0].text


def test_one_that_was_begun_and_never_finished_is_told_so() -> None:
    given = saving(4000, lambda s: s % 500 == 0 and s > 0, lambda s: s <= 2000)
    first = bad(judged(made("checkpoint_age"), given))[0]
    assert "never finished" in evidence(first).causes[0].text


@pytest.mark.parametrize("spacing", ["even", "doubling"])
def test_checkpoints_in_time_are_left_alone(spacing: str) -> None:
    at = {2**n for n in range(14)} if spacing == "doubling" else set(range(500, 9000, 500))
    given = saving(9000, lambda s: s in at, lambda s: True)
    assert bad(judged(made("checkpoint_age"), given)) == []


def test_without_any_declared_it_says_so_after_an_hour() -> None:
    verdicts = judged(made("checkpoint_age"), paced(4000, lambda s: 2.0))
    (only,) = verdicts
    assert only.judgement == "cannot_tell"


# -- disk_forecast --------------------------------------------------------------------------------


def disk(free: Callable[[float], float], hours: float = 6.0) -> list[StepFrame]:
    """A value a minute; ``free`` of the hours gone."""
    return [
        StepFrame("a0", 0, m, 60.0 * m, {"disk_free_bytes": free(m / 60.0)})
        for m in range(int(60 * hours))
    ]


def test_a_disk_that_fills_within_a_day_and_then_within_two_hours() -> None:
    verdicts = bad(judged(made("disk_forecast"), disk(lambda h: (100 - 12 * h) * GIB, 8.0)))
    assert (verdicts[0].severity, verdicts[-1].severity) == ("warning", "critical")
    assert verdicts[0].step <= 61
    assert "12.00 GiB an hour" in evidence(verdicts[0]).summary


def test_saw_teeth_of_kept_checkpoints_are_no_trend() -> None:
    teeth = disk(lambda h: (100 - 20 * (h % 0.5)) * GIB, 12.0)
    assert bad(judged(made("disk_forecast"), teeth)) == []


def test_teeth_that_reach_lower_each_time_are_one() -> None:
    teeth = disk(lambda h: (100 - 5 * h - 20 * (h % 0.5)) * GIB, 8.0)
    assert {v.severity for v in bad(judged(made("disk_forecast"), teeth))} >= {"warning"}


def test_a_full_disk_needs_no_trend() -> None:
    first = bad(judged(made("disk_forecast"), disk(lambda h: 0.1 * GIB, 0.1)))[0]
    assert (first.step, first.severity) == (0, "critical")


# -- gpu_throttle ---------------------------------------------------------------------------------


def cards(more: Callable[[int], Values], samples: int = 100) -> list[StepFrame]:
    base = {
        "gpu_util/0": 0.95, "gpu_sm_clock_hz/0": 1.9e9, "gpu_temperature_c/0": 70.0,
        "gpu_throttle/0": 0.0, "gpu_other_process/0": 0.0, "gpu_util/1": 0.95,
        "gpu_sm_clock_hz/1": 1.9e9, "gpu_throttle/1": 0.0,
    }  # fmt: skip
    return [StepFrame("a0", 0, 10 * s, 10.0 * s, {**base, **more(s)}) for s in range(samples)]


def hot(sample: int) -> Values:
    return {"gpu_throttle/1": 1.0, "gpu_temperature_c/1": 91.0} if sample >= 50 else {}


def test_a_card_that_says_it_is_slowed_and_is_hot() -> None:
    first = bad(judged(made("gpu_throttle"), cards(hot)))[0]
    assert (first.subject, first.severity, first.step) == ("1", "warning", 540)
    assert evidence(first).onset_step == 500
    assert "heat" in evidence(first).causes[0].text


def test_a_clock_that_sank_without_a_word() -> None:
    given = cards(lambda s: {"gpu_sm_clock_hz/0": 1.4e9} if s >= 50 else {})
    first = bad(judged(made("gpu_throttle"), given))[0]
    assert evidence(first).rule == "clock_below_reference"
    assert "power" in evidence(first).causes[0].text


def test_a_card_at_rest_or_touching_its_limits_is_left_alone() -> None:
    def values(s: int) -> Values:
        idle = {"gpu_util/0": 0.0, "gpu_sm_clock_hz/0": 3e8} if s % 5 == 0 else {}
        return idle | ({"gpu_throttle/1": 1.0} if s % 4 == 0 else {})

    assert bad(judged(made("gpu_throttle"), cards(values))) == []


def test_another_process_warns_where_it_came_later_only() -> None:
    later = cards(lambda s: {"gpu_other_process/0": 8 * GIB} if s >= 50 else {})
    (subject,) = {v.subject for v in loud(judged(made("gpu_throttle"), later))}
    assert subject == "0 shared"
    small = cards(lambda s: {"gpu_other_process/0": 0.2 * GIB})
    assert bad(judged(made("gpu_throttle"), small)) == []


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("throughput_drop", paced(3000, lambda s: 0.5 if s < 1500 else 0.6)),
        ("checkpoint_age", saving(4000, lambda s: s % 500 == 0 and 0 < s <= 2000, lambda s: True)),
        ("gpu_throttle", cards(hot)),
    ],
)
def test_a_judge_replaced_on_the_way_says_the_same(name: str, given: list[StepFrame]) -> None:
    def straight(detector: Detector) -> list[Any]:
        return [verdict for frame in given for verdict in detector.update(frame)]

    facts = {"planned_steps": 3000}
    assert judged(made(name, **facts), given) == straight(made(name, **facts))
