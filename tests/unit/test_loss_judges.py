"""The judges of a loss that moves the wrong way: what opens them, what must not, what they say."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import Detector, StepEvent, StepFrame, Verdict
from monitor.detectors.base import RunFacts as Facts
from monitor.detectors.heat import HeatGauge, HeatParams
from monitor.detectors.leaked_labels import LeakParams
from monitor.detectors.rolling import Rolling
from monitor.detectors.train_heldout_gap import Params as GapParams
from monitor.detectors.train_heldout_gap import TrainHeldoutGap

Values = dict[str, float]


def made(name: str, **facts: Any) -> Detector:
    return load_detector(name)(Facts("run", "pretrain", facts))


def frames(
    steps: Sequence[int], values: Callable[[int], Values], attempt: str = "a0", ordinal: int = 0
) -> list[StepFrame]:
    return [StepFrame(attempt, ordinal, s, 1000.0 + s, values(s)) for s in steps]


def judged(detector: Detector, given: Sequence[StepFrame]) -> list[Verdict]:
    return [verdict for frame in given for verdict in detector.update(frame)]


def bad(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.judgement == "bad"]


def falling(
    seed: int = 0, noise: float = 0.01, factor: Callable[[int], float] = lambda s: 1.0
) -> Any:
    """A healthy loss curve with Gaussian noise, times ``factor``."""
    source = random.Random(seed)
    return lambda s: (2.0 + 4.0 * (s + 20) ** -0.5) * source.gauss(1.0, noise) * factor(s)


def train(loss: Callable[[int], float], grad: Callable[[int], float] | None = None) -> Any:
    def values(step: int) -> Values:
        found = {"loss/train": loss(step), "lr/all": 1e-3}
        if grad is not None:
            found["grad_norm/total"] = grad(step)
        return found

    return values


# -- helpers --------------------------------------------------------------------------------------


def test_a_rolling_window_knows_the_median_and_quantiles_of_its_last_values() -> None:
    source, window, seen = random.Random(1), Rolling(31), []
    for _ in range(300):
        seen.append(round(source.uniform(0, 5), 1))  # with many equal values
        window.add(seen[-1])
        last = sorted(seen[-31:])
        assert window.quantile(0.75) == last[int(0.75 * (len(last) - 1))]
        half = len(last) // 2
        middle = last[half] if len(last) % 2 else (last[half - 1] + last[half]) / 2
        assert window.median() == middle
    assert Rolling(31, window.snapshot()).median() == window.median()


def test_heat_follows_a_falling_loss_and_is_not_taught_by_an_excursion() -> None:
    gauge, loss = HeatGauge(HeatParams()), falling(3)
    for step in range(500):
        heat = gauge.see(loss(step))
    assert heat is not None
    assert abs(heat.level - (2.0 + 4.0 * 520**-0.5)) < 0.03
    limits = []
    for _ in range(8):
        hot = gauge.see(4.0)
        assert hot is not None
        assert hot.hot
        limits.append(hot.level + hot.limit)
    assert max(limits) - min(limits) < 0.05  # the judged points stay out of the reference


# -- loss_spike -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_falling_loss_and_lone_hot_batches_open_nothing(seed: int) -> None:
    loss = falling(seed, factor=lambda s: 1.6 if s % 97 == 50 else 1.0)
    for name in ("loss_spike", "divergence", "slow_drift"):
        assert bad(judged(made(name), frames(range(3000), train(loss)))) == [], name


def test_three_hot_of_five_open_with_the_first_as_onset() -> None:
    hot = {600: 1.4, 601: 1.0, 602: 1.4, 603: 1.4}
    given = frames(range(700), train(falling(1, factor=lambda s: hot.get(s, 1.0))))
    told = judged(made("loss_spike"), given)
    first = bad(told)[0]
    assert (first.step, first.severity) == (603, "warning")
    assert first.evidence is not None
    assert first.evidence.onset_step == 600
    assert [v.reason for v in told if v.step > 603][-1] == "as_usual"


def test_one_hot_point_is_data_and_two_need_a_gradient_that_agrees() -> None:
    def told(hot: tuple[int, ...], gradient: float) -> list[Verdict]:
        loss = falling(2, factor=lambda s: 2.0 if s in hot else 1.0)
        grads = lambda s: gradient if s in hot else 1.0 + 0.1 * (s % 3)  # noqa: E731
        return bad(judged(made("loss_spike"), frames(range(700), train(loss, grads))))

    assert told((600,), 1.0) == told((600,), 30.0) == told((600, 603), 1.0) == []
    first = told((600, 603), 30.0)[0]
    assert first.step == 603
    assert first.evidence is not None
    assert "a batch the model could not digest" in first.evidence.causes[0].text


def test_gradients_that_grew_first_are_named_as_instability() -> None:
    grads = {597: 4.0, 598: 16.0, 599: 100.0, 600: 400.0}
    loss = falling(2, factor=lambda s: 2.0 if 600 <= s < 606 else 1.0)
    given = frames(range(700), train(loss, lambda s: grads.get(s, 1.0)))
    first = bad(judged(made("loss_spike"), given))[0]
    assert first.evidence is not None
    cause = first.evidence.causes[0]
    assert "gradients grew before the loss did" in cause.text
    assert "3 steps before" in cause.why


@pytest.mark.parametrize("grad", [0.0, 464441.887])
def test_a_dead_gradient_instrument_says_nothing(grad: float) -> None:
    loss = falling(2, factor=lambda s: 1.5 if s >= 600 else 1.0)
    first = bad(judged(made("loss_spike"), frames(range(650), train(loss, lambda s: grad))))[0]
    assert first.step == 602  # by its own persistence
    assert first.evidence is not None
    assert first.evidence.causes[0].text.startswith("unexplained")


def test_a_raised_learning_rate_is_named() -> None:
    loss = falling(2, factor=lambda s: 1.5 if s >= 600 else 1.0)

    def values(step: int) -> Values:
        return {"loss/train": loss(step), "lr/all": 1e-2 if step >= 598 else 1e-3}

    first = bad(judged(made("loss_spike"), frames(range(620), values)))[0]
    assert first.evidence is not None
    assert first.evidence.causes[0].text == "the learning rate was raised x10 at step 598"


def test_a_level_that_stays_becomes_usual_in_the_end() -> None:
    loss = falling(4, factor=lambda s: 1.3 if s >= 600 else 1.0)
    told = judged(made("loss_spike"), frames(range(1200), train(loss)))
    assert max(v.step for v in bad(told)) < 600 + 320
    assert "new_level" in {v.reason for v in told}


def test_a_declared_mix_and_a_new_attempt_begin_without_the_past() -> None:
    loss = falling(4, factor=lambda s: 1.4 if s >= 600 else 1.0)
    given = frames(range(900), train(loss))
    mix = StepEvent("phase", "data_mix", 1600.0)
    given[600] = StepFrame("a0", 0, 600, 1600.0, given[600].values, (mix,))
    for name in ("loss_spike", "divergence", "slow_drift"):
        assert bad(judged(made(name), given)) == [], name
    first, second = frames(range(600), train(loss)), frames(range(600, 900), train(loss), "a1", 1)
    for name in ("loss_spike", "divergence", "slow_drift"):
        assert bad(judged(made(name), first + second)) == [], name


def test_it_says_how_many_more_steps_it_needs() -> None:
    told = judged(made("loss_spike"), frames(range(0, 500, 10), train(falling(1))))
    assert {v.judgement for v in told} == {"cannot_tell"}
    assert told[-1].evidence is not None
    assert told[-1].evidence.summary.startswith("needs about ")


# -- divergence -----------------------------------------------------------------------------------


def test_a_spike_that_recovers_is_no_divergence_and_one_that_stays_is() -> None:
    spike = falling(5, factor=lambda s: 1.0 + math.exp(-(s - 600) / 5) if s >= 600 else 1.0)
    assert bad(judged(made("divergence"), frames(range(900), train(spike)))) == []
    stays = falling(5, factor=lambda s: 1.4 if s >= 600 else 1.0)
    found = bad(judged(made("divergence"), frames(range(900), train(stays))))
    assert (found[0].step, found[0].severity, found[0].reason) == (619, "critical", "hot_in_a_row")
    assert found[0].evidence is not None
    assert found[0].evidence.onset_step == 600
    assert found[-1].step == 899  # what it judges by is still the level before


def test_above_the_loss_it_began_with_five_points_are_enough() -> None:
    loss = falling(6, factor=lambda s: 6.0 if s >= 600 else 1.0 + 3.0 / (s + 1))
    first = bad(judged(made("divergence"), frames(range(650), train(loss))))[0]
    assert (first.step, first.reason) == (604, "worse_than_untrained")


def test_fresh_data_after_memorised_repeats_is_no_divergence() -> None:
    def values(step: int) -> Values:
        stale = 400 <= step < 800
        return {"loss/train": loss(step), "repeat_share": 1.0 if stale else 0.0}

    loss = falling(7, factor=lambda s: 0.4 if 400 <= s < 800 else 1.0)
    given = frames(range(1000), values)
    assert bad(judged(made("divergence"), given)) == []
    first = bad(judged(made("loss_spike"), given))[0]
    assert first.evidence is not None
    assert "fresh data came back at step 800" in first.evidence.causes[0].text


# -- slow_drift -----------------------------------------------------------------------------------


def creep(start: int) -> Callable[[int], float]:
    return lambda s: 1.0 + 1e-4 * max(s - start, 0)


def test_a_creep_of_a_hundredth_of_a_percent_a_step_is_found() -> None:
    loss = falling(8, factor=creep(3000))
    first = bad(judged(made("slow_drift"), frames(range(6000), train(loss))))[0]
    assert 3000 < first.step < 4200
    assert first.evidence is not None
    assert 2500 < (first.evidence.onset_step or 0) < 3600


def test_a_step_to_harder_batches_is_no_drift() -> None:
    loss = falling(8, factor=lambda s: 0.95 if 2000 <= s < 3500 else 1.0)
    assert bad(judged(made("slow_drift"), frames(range(5000), train(loss)))) == []


def test_a_held_out_loss_that_does_not_rise_speaks_against_it() -> None:
    loss, plain = falling(8, factor=creep(3000)), falling(8, noise=0.0)

    def values(step: int) -> Values:
        found = {"loss/train": loss(step)}
        if step % 100 == 0:
            found["loss/probe"] = plain(step)
        return found

    assert bad(judged(made("slow_drift"), frames(range(6000), values))) == []


# -- train_heldout_gap ----------------------------------------------------------------------------


def probed(
    loss: Callable[[int], float], held: Callable[[int], float], top1: Any = None, every: int = 50
) -> Callable[[int], Values]:
    def values(step: int) -> Values:
        found = {"loss/train": loss(step)}
        if step % every == 0:
            found["loss/probe"] = held(step)
            if top1 is not None:
                found["top1/probe"] = top1(step)
        return found

    return values


def turning(step: int) -> float:
    return 2.0 + 4.0 * (step + 20) ** -0.5 + 4e-4 * max(step - 1000, 0)


def memorising(step: int) -> float:
    return 2.0 + 4.0 * (step + 20) ** -0.5 - 6e-4 * max(step - 900, 0)


def test_a_held_out_loss_that_turns_while_the_train_loss_falls_is_over_fitting() -> None:
    given = frames(range(2000), probed(memorising, turning))
    first = bad(judged(made("train_heldout_gap"), given))[0]
    assert (first.reason, first.severity) == ("overfit", "warning")
    assert 1050 <= first.step <= 1500
    assert first.evidence is not None
    assert 950 <= (first.evidence.onset_step or 0) <= 1150


def test_held_out_that_falls_with_the_train_loss_is_calm() -> None:
    given = frames(range(4000), probed(falling(9), falling(10, noise=0.002)))
    assert bad(judged(made("train_heldout_gap"), given)) == []


def test_better_by_accuracy_is_information() -> None:
    given = frames(range(2000), probed(memorising, turning, lambda s: 0.3 + 1e-4 * s))
    found = bad(judged(made("train_heldout_gap"), given))
    assert {v.severity for v in found[-10:]} == {"info"}
    assert found[-1].evidence is not None
    assert "Worse by loss, not by accuracy" in found[-1].evidence.summary


def test_a_held_out_loss_that_never_fell_may_still_grok() -> None:
    def held(step: int) -> float:
        return 4.6 + 1e-3 * step

    given = frames(range(1000), probed(lambda s: 4.6 * math.exp(-s / 100), held, lambda s: 0.01))
    assert {v.severity for v in bad(judged(made("train_heldout_gap"), given))} == {"info"}


def test_batches_that_become_easy_at_once_open_the_gap() -> None:
    loss = falling(10, factor=lambda s: 0.7 if s >= 1000 else 1.0)
    held = falling(11, noise=0.001)
    given = frames(range(1300), probed(loss, held))
    first = bad(judged(made("train_heldout_gap"), given))[0]
    assert (first.reason, first.step) == ("jump", 1100)  # the second evaluation that shows it
    assert first.evidence is not None
    assert first.evidence.onset_step == 1001


def test_a_gap_that_opens_for_one_evaluation_is_luck() -> None:
    loss = falling(10, factor=lambda s: 0.7 if 1000 <= s < 1050 else 1.0)
    given = frames(range(1300), probed(loss, falling(11, noise=0.001)))
    assert bad(judged(made("train_heldout_gap"), given)) == []


def test_sources_of_the_held_out_loss_are_judged_by_their_mean() -> None:
    def values(step: int) -> Values:
        found = {"loss/train": memorising(step)}
        if step % 50 == 0:
            found |= {"loss/heldout@a": turning(step) - 0.2, "loss/heldout@b": turning(step) + 0.2}
        return found

    assert bad(judged(made("train_heldout_gap"), frames(range(2000), values)))


# -- resume_jump ----------------------------------------------------------------------------------


def resumed(factor: Callable[[int], float], rate: float = 1e-3, back: int = 212) -> list[Verdict]:
    detector, loss = made("resume_jump"), falling(12)
    again = falling(13, factor=factor)
    old = frames(range(400), train(loss))
    new = frames(
        range(back, back + 300), lambda s: {"loss/train": again(s), "lr/all": rate}, "a1", 1
    )
    return judged(detector, old + new)


def test_a_jump_at_a_resume_names_both_values_and_ends_when_it_comes_back() -> None:
    told = resumed(lambda s: 1.0 + 0.6 * math.exp(-(s - 212) / 12))
    found = bad(told)
    assert 212 <= found[0].step <= 220
    assert found[0].evidence is not None
    assert found[0].evidence.onset_step == 212
    assert "the attempt before had 2.2" in found[0].evidence.summary
    assert found[-1].step < 262
    assert "state was lost" in found[0].evidence.causes[0].text


def test_a_resume_that_goes_on_is_calm_and_later_steps_are_not_its_business() -> None:
    assert bad(resumed(lambda s: 1.0)) == []
    assert bad(resumed(lambda s: 2.0 if s > 420 else 1.0)) == []


def test_another_learning_rate_at_the_resume_is_named() -> None:
    found = bad(resumed(lambda s: 1.5, rate=1e-2))
    assert found[0].evidence is not None
    assert (
        found[0].evidence.causes[0].text == "the learning rate is x10 of what it was at this step"
    )
    assert max(v.step for v in found) < 212 + 200


# -- labels that leak -----------------------------------------------------------------------------


def leaking(repeats: float | None, train: float, **params: Any) -> list[Verdict]:
    def values(step: int) -> Values:
        found = {"loss/train": 5.0 if step < 40 else train}
        if repeats is not None:
            found["repeat_share"] = repeats
        return found | ({"loss/probe": 4.0} if step % 25 == 0 else {})

    given = GapParams(leak=LeakParams(**params))
    detector = TrainHeldoutGap(Facts("run", "pretrain", {}), given)
    found = bad(judged(detector, frames(range(400), values)))
    return [verdict for verdict in found if verdict.reason == "leaked_labels"]


def test_fresh_rows_that_are_known_by_heart_are_labels_that_leak() -> None:
    first = leaking(0.0, 0.05)[0]
    assert first.step <= 150
    assert first.evidence is not None
    assert (first.evidence.onset_step or 0) <= 51
    assert "targets stand in the inputs" in first.evidence.causes[0].text


def test_the_threshold_that_is_told_is_the_one_that_was_judged_by() -> None:
    def told(**params: Any) -> list[float | None]:
        return [one.evidence.threshold for one in leaking(0.0, 0.05, **params)[:1] if one.evidence]

    assert told() == [1.0]
    assert told(share=0.5) == [2.0]
    assert told(apart_nats=3.5) == [0.5]
    assert leaking(0.0, 0.05, share=0.01) == []


def test_rows_that_may_have_been_memorised_are_no_leak() -> None:
    assert leaking(0.5, 0.05) == leaking(None, 0.05) == leaking(0.0, 1.5) == []
