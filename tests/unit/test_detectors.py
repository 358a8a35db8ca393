"""Each detector on small made-up series: what opens it, what must not, and what it says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from monitor.detectors import DETECTORS, load_detector
from monitor.detectors.base import Detector, RunFacts, StepEvent, StepFrame, Verdict

Values = dict[str, float]


def frames(
    steps: Sequence[int], values: Callable[[int], Values], attempt: str = "a0", ordinal: int = 0
) -> list[StepFrame]:
    return [StepFrame(attempt, ordinal, s, 1000.0 + s, values(s)) for s in steps]


def made(name: str, **facts: Any) -> Detector:
    return load_detector(name)(RunFacts("run", "pretrain", facts))


def judged(detector: Detector, given: Sequence[StepFrame]) -> list[Verdict]:
    return [verdict for frame in given for verdict in detector.update(frame)]


def bad(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.judgement == "bad"]


def noisy(seed: int, level: Callable[[int], float], share: float, key: str) -> Any:
    noise = random.Random(seed)
    return lambda step: {key: level(step) * (1.0 + noise.uniform(-share, share))}


@pytest.mark.parametrize("name", DETECTORS)
def test_nothing_is_said_of_steps_that_bring_nothing(name: str) -> None:
    assert judged(made(name), frames(range(300), lambda s: {})) == []


@pytest.mark.parametrize("name", DETECTORS)
def test_only_non_finite_speaks_of_what_is_not_finite(name: str) -> None:
    """NaN neither satisfies nor resolves a threshold, and spoils no memory."""
    keys = {
        "loss/train": 2.0, "loss/probe": 2.0, "entropy_minus_nll/probe": 0.0, "repeat_share": 0.0,
        "weight_norm/mlp_in": 5.0, "grad_norm/total": 1.0,
    }  # fmt: skip
    detector = made(name)
    steps = frames(
        range(400), lambda s: {k: math.nan if 200 <= s < 220 else v for k, v in keys.items()}
    )
    said = {v.step for v in bad(judged(detector, steps)) if v.severity == "critical"}
    assert said == (set(range(200, 220)) if name == "non_finite" else set())
    plain = str(detector.snapshot())
    assert "nan" not in plain.replace("non_finite", "")


# -- non_finite -----------------------------------------------------------------------------------


def test_a_lone_overflow_of_the_gradient_is_the_search_for_a_loss_scale() -> None:
    def values(step: int) -> Values:
        return {"loss/train": 2.0, "grad_norm/total": math.inf if step % 100 == 7 else 1.0}

    assert bad(judged(made("non_finite"), frames(range(500), values))) == []


def test_three_broken_gradients_in_a_row_began_at_the_first() -> None:
    def values(step: int) -> Values:
        return {"loss/train": 2.0, "grad_norm/total": math.nan if step >= 50 else 1.0}

    first = bad(judged(made("non_finite"), frames(range(60), values)))[0]
    assert (first.step, first.reason) == (52, "gradient_not_finite")
    assert first.evidence is not None
    assert first.evidence.onset_step == 50


def test_a_loss_of_zero_with_a_broken_gradient_is_a_nan_in_disguise() -> None:
    given = frames([5], lambda s: {"loss/train": 0.0, "grad_norm/total": math.nan})
    assert bad(judged(made("non_finite"), given))[0].reason == "zero_loss_with_broken_gradient"


def test_a_loss_of_zero_alone_is_none() -> None:
    given = frames(range(50), lambda s: {"loss/train": 0.0, "grad_norm/total": 0.1})
    assert bad(judged(made("non_finite"), given)) == []


def test_a_gradient_that_grew_before_is_named() -> None:
    def values(step: int) -> Values:
        return {
            "loss/train": math.nan if step >= 40 else 2.0,
            "grad_norm/total": 50.0 if 37 <= step < 40 else 1.0,
        }

    first = bad(judged(made("non_finite"), frames(range(41), values)))[0]
    assert first.evidence is not None
    assert "diverged" in first.evidence.causes[0].text
    assert "37x its usual size" in first.evidence.causes[0].why


# -- stale_data -----------------------------------------------------------------------------------


def test_the_first_repeat_and_the_stall_before_it_are_named() -> None:
    given = frames(range(400), lambda s: {"repeat_share": 1.0 if s >= 300 else 0.0})
    stall = StepEvent("event", "data_stall", 1284.0, data={"wait_s": 4.1})
    given[284] = StepFrame("a0", 0, 284, 1284.0, given[284].values, (stall,))
    first = bad(judged(made("stale_data"), given))[0]
    assert (first.step, first.severity) == (304, "critical")
    assert first.evidence is not None
    assert first.evidence.onset_step == 300
    assert "after a stall of 4.1 s at step 284" in first.evidence.causes[0].text


def test_a_stray_repeat_before_is_not_the_onset() -> None:
    def values(step: int) -> Values:
        return {"repeat_share": 1.0 if step >= 300 or step == 289 else 0.0}

    first = bad(judged(made("stale_data"), frames(range(320), values)))[0]
    assert first.evidence is not None
    assert first.evidence.onset_step == 300


def test_a_few_repeats_are_information_and_stray_ones_nothing() -> None:
    few = judged(made("stale_data"), frames(range(300), lambda s: {"repeat_share": 0.02}))
    assert {v.severity for v in bad(few)} == {"info"}
    stray = frames(range(300), lambda s: {"repeat_share": 0.0625 if s % 7 == 0 else 0.0})
    assert bad(judged(made("stale_data"), stray)) == []


def test_a_resumed_attempt_starts_without_the_window_of_the_old_one() -> None:
    detector = made("stale_data")
    judged(detector, frames(range(304), lambda s: {"repeat_share": 1.0 if s >= 300 else 0.0}))
    again = frames(range(290, 400), lambda s: {"repeat_share": 0.0}, "a1", 1)
    assert bad(judged(detector, again)) == []


# -- overconfidence -------------------------------------------------------------------------------


def probe(balance: float, loss: float = 2.0) -> Values:
    return {"entropy_minus_nll/probe": balance, "loss/probe": loss}


def test_a_calibrated_model_and_its_noise_are_left_alone() -> None:
    noise = random.Random(3)
    given = frames(range(0, 5000, 25), lambda s: probe(noise.gauss(0.0, 0.04)))
    assert bad(judged(made("overconfidence"), given)) == []


def test_surer_than_right_warns_and_is_critical_once_the_held_out_loss_rises() -> None:
    def values(step: int) -> Values:
        return probe(-0.005 * max(0, step - 500) / 2, 2.0 + 0.002 * max(0, step - 700))

    verdicts = bad(judged(made("overconfidence"), frames(range(0, 1000, 25), values)))
    assert verdicts[0].severity == "warning"
    assert 550 <= verdicts[0].step <= 600
    assert verdicts[-1].severity == "critical"
    onset = verdicts[0].evidence.onset_step if verdicts[0].evidence else None
    assert onset is not None
    assert 500 < onset <= verdicts[0].step


def test_it_says_how_many_more_steps_it_needs() -> None:
    verdicts = judged(made("overconfidence"), frames([25, 50, 75], lambda s: probe(-1.0)))
    assert {v.judgement for v in verdicts} == {"cannot_tell"}
    assert verdicts[-1].evidence is not None
    assert "needs about 78 more steps" in verdicts[-1].evidence.summary


def test_a_falling_learning_rate_sharpens_healthily() -> None:
    """Sharper than its best by 0.17 since the decay began at -0.06: that is the schedule's work."""

    def values(step: int) -> Values:
        rate = 1.0 if step < 1000 else max(0.1, 1.0 - (step - 1000) / 1000)
        balance = 0.05 - 0.11 * min(step, 1000) / 1000 - 0.11 * max(0, step - 1000) / 1000
        return {"lr/g": rate, **probe(balance)}

    assert bad(judged(made("overconfidence"), frames(range(0, 2000, 50), values))) == []


# -- norm_blowup ----------------------------------------------------------------------------------


def norms(exponent: Callable[[int], float]) -> Callable[[int], Values]:
    level = {"W": 10.0, "t": 1}

    def values(step: int) -> Values:
        while level["t"] < step:
            level["t"] += 1
            level["W"] *= (level["t"] / (level["t"] - 1)) ** exponent(int(level["t"]))
        return {"weight_norm/mlp_in": level["W"]}

    return values


def test_a_random_walk_is_no_blow_up() -> None:
    given = frames(range(0, 20_000, 50), norms(lambda t: 0.55))
    assert bad(judged(made("norm_blowup"), given)) == []


def test_growth_that_outruns_its_age_is_one() -> None:
    given = frames(range(0, 20_000, 50), norms(lambda t: 0.2 if t < 4000 else 1.5))
    first = bad(judged(made("norm_blowup"), given))[0]
    assert (first.subject, first.severity, first.reason) == ("mlp_in", "critical", "growth")
    assert 4000 < first.step < 10_000


@pytest.mark.parametrize(
    ("factor", "reason", "severity"), [(1.5, "jump", "warning"), (0.05, "collapse", "critical")]
)
def test_jumps_and_collapses(factor: float, reason: str, severity: str) -> None:
    given = frames(
        range(0, 2000, 50), lambda s: {"weight_norm/head": 8.0 * (factor if s >= 1000 else 1)}
    )
    first = bad(judged(made("norm_blowup"), given))[0]
    assert (first.step, first.reason, first.severity) == (1000, reason, severity)


def test_adapters_may_grow_from_nothing() -> None:
    given = frames(range(0, 900, 10), lambda s: {"weight_norm/lora": 0.001 * s})
    assert bad(judged(made("norm_blowup"), given)) == []


def test_a_wrong_checkpoint_shows_at_the_first_sample_of_the_new_attempt() -> None:
    detector = made("norm_blowup")
    judged(detector, frames(range(0, 1000, 50), lambda s: {"weight_norm/head": 10.0}))
    again = frames(range(800, 900, 50), lambda s: {"weight_norm/head": 20.0}, "a1", 1)
    assert [v.reason for v in bad(judged(detector, again))] == ["jump"]


# -- loss_plateau ---------------------------------------------------------------------------------


def opened(verdicts: Sequence[Verdict]) -> Verdict | None:
    return next(iter(bad(verdicts)), None)


def test_flat_from_the_start_for_five_hundred_points_is_no_progress() -> None:
    given = frames(range(1000), noisy(1, lambda s: 5.81, 0.01 / 5.81, "loss/train"))
    first = opened(judged(made("loss_plateau"), given))
    assert first is not None
    assert (first.reason, first.severity) == ("no_progress", "warning")
    assert first.step <= 530


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_fall_under_much_noise_is_not_judged(seed: int) -> None:
    level = lambda s: 4.0 * (1.0 - 0.005 * s / 1000)  # noqa: E731
    given = frames(range(6000), noisy(seed, level, 0.03, "loss/train"))
    verdicts = judged(made("loss_plateau"), given)
    assert bad(verdicts) == []
    doubts = [v for v in verdicts if v.judgement == "cannot_tell"]
    assert doubts
    assert doubts[-1].evidence is not None
    assert "more steps" in doubts[-1].evidence.summary


def falling_then_flat(flat_at: int, again_at: int = 10**9) -> Callable[[int], float]:
    def level(step: int) -> float:
        if step >= again_at:
            return 2.4 - 0.00005 * (step - again_at)
        return 2.0 + 8.0 * (min(step, flat_at) + 10) ** -0.3

    return level


def heldout(level: Callable[[int], float], **more: Callable[[int], float]) -> Any:
    noise = random.Random(5)
    return lambda step: {
        "loss/heldout": level(step) + noise.gauss(0.0, 0.002),
        **{key.replace("__", "/"): value(step) for key, value in more.items()},
    }


def test_a_fall_that_stops_is_found_and_dated() -> None:
    given = frames(range(0, 10_000, 100), heldout(falling_then_flat(5000)))
    first = opened(judged(made("loss_plateau"), given))
    assert first is not None
    assert first.reason == "plateau"
    assert 5000 < first.step <= 6500
    assert first.evidence is not None
    assert first.evidence.onset_step is not None
    assert 4800 <= first.evidence.onset_step <= first.step
    assert "unexplained" in first.evidence.causes[0].text


def test_it_lasts_as_long_as_the_plateau_and_the_drop_after_it_ends_it() -> None:
    given = frames(range(0, 20_000, 100), heldout(falling_then_flat(5000, again_at=15_000)))
    verdicts = [v for v in judged(made("loss_plateau"), given) if v.step > 7000]
    during = [v for v in verdicts if v.step < 15_000]
    assert {v.judgement for v in during} == {"bad"}
    after = [v for v in verdicts if v.step >= 15_000]
    ended = next(v for v in after if v.judgement == "calm")
    assert ended.step <= 15_500
    assert bad([v for v in after if v.step > ended.step]) == []


def test_top_10_still_improving_is_told_and_not_pushed() -> None:
    given = frames(
        range(0, 10_000, 100),
        heldout(falling_then_flat(5000), top10__probe=lambda s: s / 20_000),
    )
    first = opened(judged(made("loss_plateau"), given))
    assert first is not None
    assert (first.severity, first.reason) == ("info", "top10_improving")
    assert first.title == "top-1 flat, top-10 still improving: wait"


def test_stale_data_after_a_stall_is_named_as_the_cause() -> None:
    given = frames(
        range(0, 10_000, 100),
        heldout(falling_then_flat(5000), repeat_share=lambda s: 1.0 if s >= 5000 else 0.0),
    )
    stall = StepEvent("event", "data_stall", 5900.0, data={"wait_s": 4.0})
    given[49] = StepFrame("a0", 0, 4900, 5900.0, given[49].values, (stall,))
    first = opened(judged(made("loss_plateau"), given))
    assert first is not None
    assert first.evidence is not None
    assert "stale data" in first.evidence.causes[0].text
    assert "stall" in first.evidence.causes[0].text


def test_the_tail_of_a_schedule_may_be_flat() -> None:
    def level(step: int) -> float:
        return falling_then_flat(8000)(step)

    given = frames(
        range(0, 10_000, 100),
        heldout(level, lr__g=lambda s: 1.0 if s < 4000 else max(0.0, 1.0 - (s - 4000) / 4000)),
    )
    assert bad(judged(made("loss_plateau"), given)) == []


def test_another_mix_of_data_begins_the_curve_anew() -> None:
    given = frames(range(0, 10_000, 100), heldout(falling_then_flat(5000)))
    mix = StepEvent("phase", "data_mix", 6000.0)
    given[50] = StepFrame("a0", 0, 5000, 6000.0, given[50].values, (mix,))
    assert bad(judged(made("loss_plateau"), given)) == []


def test_going_back_takes_the_blocks_beyond_with_it() -> None:
    detector = made("loss_plateau")
    judged(detector, frames(range(0, 6000, 100), heldout(falling_then_flat(5000))))
    again = frames(range(4000, 10_000, 100), heldout(falling_then_flat(10**6)), "a1", 1)
    assert bad(judged(detector, again)) == []
