"""The guard: who starves the loader is named within two windows, and nobody else is."""

from __future__ import annotations

import json
import random

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import RunFacts, StepEvent, StepFrame
from monitor.services.judging import DetectionEngine
from trainer_hooks.wire import to_plain

WINDOWS = [(300, 340), (600, 640), (900, 940)]
WHO = "watchkeeper sample on cpu"


def run(
    step_time, *, windows=WINDOWS, steps=1200, loss=lambda s: 2.0 - s / 5000, late=0, seed=0,
    restart_at=None,
):  # fmt: skip
    """Verdicts of a run whose steps take ``step_time(step, inside) -> (step_s, wait_s)``."""
    noise = random.Random(seed)
    made = lambda: load_detector("sampler_interference")(RunFacts("run", "pretrain", {}))  # noqa: E731
    detector = made()
    t, verdicts, waiting = 1000.0, [], []
    for step in range(1, steps + 1):
        inside = any(a <= step < b for a, b in windows)
        step_s, wait_s = step_time(step, inside)
        step_s *= 1 + noise.gauss(0, 0.03)
        for a, b in windows:
            if step == a:
                waiting.append(
                    (step + late, StepEvent("phase", "sampling", t, WHO, {"phase_id": f"w{a}"}))
                )
            if step == b:
                waiting.append(
                    (step + late, StepEvent("phase_end", "sampling", t, WHO, {"phase_id": f"w{a}"}))
                )
        t += step_s
        events = tuple(event for due, event in waiting if due == step)
        values = {
            "step_s": step_s,
            "data_wait_s": wait_s,
            "loss/train": loss(step) + noise.gauss(0, 0.02),
        }
        verdicts += detector.update(StepFrame("a0", 0, step, t, values, events))
        if step == restart_at:
            state = json.loads(json.dumps(to_plain(detector.snapshot()), allow_nan=False))
            detector = made()
            detector.restore(state)
    return verdicts


def healthy(step, inside):
    return 0.1, 0.001


def starved(step, inside):
    return (0.16, 0.06) if inside else (0.1, 0.001)


def judged(verdicts):
    return [(v.judgement, v.reason) for v in verdicts]


def test_a_sampler_that_starves_the_loader_is_named():
    verdicts = run(starved)
    assert judged(verdicts) == [("bad", "starved")] * 3
    first = verdicts[0]
    assert first.step < 600  # said before the second window
    assert WHO in first.evidence.summary
    assert "waiting 60 ms for data instead of 1 ms" in first.evidence.summary
    assert first.evidence.causes[0].text == f"{WHO} starves the loader"
    assert first.evidence.onset_step in (300, 301)


def test_the_alert_opens_at_the_second_window():
    engine = DetectionEngine("run", {})
    del engine
    from monitor.domain.alert import Hysteresis, Track, advance

    hold = load_detector("sampler_interference").hold
    track = Track()
    for n, verdict in enumerate(run(starved)[:2], start=1):
        track = advance(track, verdict.judgement, Hysteresis(hold.k, hold.m, hold.calm))
        assert track.open == (n == 2)


def test_without_starvation_it_says_no_lasting_effect():
    verdicts = run(healthy)
    assert judged(verdicts) == [("calm", "no_lasting_effect")] * 3
    assert verdicts[0].evidence.summary == f"{WHO}: no lasting effect"


@pytest.mark.parametrize("at", [301, 315, 339])
def test_an_unrelated_stall_in_the_window_is_not_the_samplers(at):
    verdicts = run(lambda s, inside: (8.0, 7.9) if s in (at, at + 300) else healthy(s, inside))
    assert judged(verdicts)[:2] == [("calm", "other_stall")] * 2
    assert "not the sampler's doing" in verdicts[0].evidence.summary


def test_a_slow_loader_that_begins_within_a_window_is_not_the_samplers():
    verdicts = run(lambda s, inside: (0.16, 0.06) if s > 325 else healthy(s, inside))
    assert all(judgement != "bad" for judgement, _ in judged(verdicts))


def test_a_loader_that_was_slow_before_is_not_the_samplers():
    verdicts = run(lambda s, inside: (0.16, 0.06))
    assert judged(verdicts) == [("calm", "no_lasting_effect")] * 3


def test_one_that_takes_the_processors_slows_without_waiting():
    verdicts = run(lambda s, inside: (0.14, 0.001) if inside else healthy(s, inside))
    assert judged(verdicts) == [("bad", "slowed")] * 3
    assert "steps took x1." in verdicts[0].evidence.summary


def test_what_lasts_after_the_window_is_said():
    verdicts = run(
        lambda s, inside: (0.16, 0.06) if s >= 300 else healthy(s, inside),
        loss=lambda s: 2.0 if s < 300 else 2.4,
    )
    assert judged(verdicts)[0] == ("bad", "starved")
    assert "and still do; the loss rose" in verdicts[0].evidence.summary


def test_phases_that_are_told_late_are_judged_all_the_same():
    assert judged(run(starved, late=45)) == [("bad", "starved")] * 3


def test_short_windows_and_short_runs_tell_nothing_bad():
    assert judged(run(starved, windows=[(300, 303)])) == [("calm", "no_lasting_effect")]
    assert judged(run(starved, windows=[(5, 25)], steps=60)) == [("cannot_tell", "unknown")]


@pytest.mark.parametrize("at", [299, 320, 350])
def test_a_restart_changes_nothing(at):
    assert judged(run(starved, restart_at=at)) == judged(run(starved))


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_names_nobody(seed):
    noise = random.Random(100 + seed)
    verdicts = run(lambda s, inside: (0.1 * noise.lognormvariate(0, 0.3), 0.001), seed=seed)
    assert all(judgement == "calm" for judgement, _ in judged(verdicts))


def test_one_that_begins_and_ends_within_its_window_is_named_though_most_steps_are_as_usual():
    """While it starves the loader there are few steps; the others lie before and after."""
    begun, ended = 310, 324
    verdicts = run(
        lambda s, inside: (0.5, 0.4) if begun <= s % 300 + 300 < ended else healthy(s, inside)
    )
    assert judged(verdicts) == [("bad", "starved")] * 3


def test_two_stalls_at_both_ends_of_a_window_are_not_the_samplers():
    verdicts = run(lambda s, inside: (4.0, 3.9) if s % 300 in (1, 38) else healthy(s, inside))
    assert judged(verdicts) == [("calm", "other_stall")] * 3
