"""Shorter or surer and not better: what opens, what does not, and how late answers count."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import RunFacts
from monitor.domain.log import LogEntry
from monitor.domain.paired import effect, holm, rank_sum_p
from monitor.services.judging import DetectionEngine
from trainer_hooks.wire import Answer, AttemptStart, Phase, RunStart, to_plain

PROMPTS = 12


def answers(
    step, *, length=60.0, sure=0.45, nll=2.4, ends=0.001, checks=None, sampling=None, seed=0,
    prompts=PROMPTS,
):  # fmt: skip
    """A sampling of ``prompts`` answers that scatter about these numbers."""
    name = sampling or f"s{step}"
    noise = random.Random(f"{step}-{seed}")
    made = []
    for i in range(prompts):
        base = random.Random(f"prompt {i}")
        size = max(1, round(length * base.uniform(0.5, 1.5) * noise.uniform(0.9, 1.1)))
        p = min(0.99, sure * base.uniform(0.8, 1.2) * noise.uniform(0.97, 1.03))
        made.append(
            Answer(
                name, f"p{i}", f"h{i}", f"prompt {i}", "word " * size, step, 1000.0 + step,
                token_ids=list(range(size)), token_logprobs=[math.log(p)] * size,
                reference_nll=None if nll is None else nll * base.uniform(0.7, 1.3)
                + noise.uniform(-0.01, 0.01),
                end_token_probs={"0": 0.5, "8": ends * noise.uniform(0.9, 1.1)},
                checks={} if checks is None else {"python": i < checks}, sampling_size=prompts,
            )
        )  # fmt: skip
    return made


def entry(pos, records, *, attempt="a0", through=None, **note):
    return LogEntry(
        "run", pos, "batch", 1000.0 + pos, attempt=attempt, source="s", seq=pos,
        through_step=through, records=tuple(records), note=note,
    )  # fmt: skip


def engine_with(*samplings, bystander=True):
    engine = DetectionEngine("run", {"answers_drift": load_detector("answers_drift")})
    start = [RunStart("r", 0.0), AttemptStart(1, 0, 0.0)]
    effects = engine.feed(entry(1, start, through=5000))
    for pos, sampling in enumerate(samplings, start=2):
        effects += engine.feed(entry(pos, sampling, bystander=bystander))
    return engine, effects


def opened(effects):
    return [e.alert for e in effects if e.change and e.change.new == "firing"]


def said(*samplings):
    """Judgement and reason of each sampling, without hysteresis."""
    detector = load_detector("answers_drift")(RunFacts("run", "pretrain", {}))
    engine = DetectionEngine("run", {})
    engine.feed(entry(1, [AttemptStart(1, 0, 0.0)]))
    found = []
    for pos, sampling in enumerate(samplings, start=2):
        frame = engine._frames.arrival(entry(pos, sampling))
        found += [(v.step, v.judgement, v.reason) for v in detector.update(frame)]
        json.dumps(to_plain(detector.snapshot()), allow_nan=False)
    return found


def test_shorter_and_surer_while_the_references_stay_opens_at_the_second_sampling():
    days = [answers(200), answers(400), *(
        answers(400 + 200 * i, length=60 - 12 * i, sure=0.45 + 0.07 * i, nll=2.4 + 0.03 * i)
        for i in range(1, 5)
    )]  # fmt: skip
    _, effects = engine_with(*days)
    (alert,) = opened(effects)
    assert alert.detector == "answers_drift"
    assert alert.severity == "warning"
    assert alert.onset_step == 401  # after the last sampling that was as before
    assert alert.opened_step <= 1000
    words = alert.evidence["summary"]
    assert "shorter" in words
    assert "surer" in words
    assert "further off" in words


def test_getting_surer_by_learning_is_no_fault():
    days = [
        answers(200 + 200 * i, sure=0.3 + 0.05 * i, nll=2.8 - 0.12 * i, length=60 - 3 * i)
        for i in range(8)
    ]
    assert {judgement for _, judgement, _ in said(*days)} == {"calm"}


def test_slow_shrinking_is_seen_against_the_fixed_reference():
    """Each day differs little from the one before: a moving baseline stays silent."""
    days = [answers(200 + 10 * i, length=60 * 0.985**i, ends=0.001, sure=0.45) for i in range(60)]
    _, effects = engine_with(*days)
    (alert,) = opened(effects)
    assert alert.evidence["numbers"][0][0] == "length"
    assert alert.opened_step < 200 + 10 * 30


def test_base_models_end_sooner_before_they_end_at_all():
    days = [answers(200), answers(400), answers(600, ends=0.004), answers(800, ends=0.02)]
    assert [j for _, j, _ in said(*days)] == ["calm", "bad", "bad"]
    assert said(*days)[-1][2] == "shorter"


def test_surer_and_better_checks_is_better():
    better = answers(400, sure=0.7, nll=None, checks=10)
    worse = answers(400, sure=0.7, nll=None, checks=3)
    assert said(answers(200, nll=None, checks=5), better)[0][1] == "calm"
    assert said(answers(200, nll=None, checks=5), worse)[0][1] == "bad"


def test_without_references_only_both_signs_together_speak():
    base = answers(200, nll=None)
    assert said(base, answers(400, nll=None, sure=0.7))[0][1] == "cannot_tell"
    assert said(base, answers(400, nll=None, sure=0.7, length=40))[0][1] == "bad"
    assert said(base, answers(400, nll=None, length=45))[0][1] == "cannot_tell"
    assert said(base, answers(400, nll=None, length=20))[0][1] == "bad"


def test_a_proven_improvement_becomes_the_reference():
    days = [answers(200, nll=2.6), answers(400, nll=2.2), answers(600, nll=2.3, sure=0.6)]
    assert [j for _, j, _ in said(*days)] == ["calm", "bad"]  # better than 200, worse than 400


def test_another_decoding_is_not_compared():
    other = [replace(answer, temperature=0.9) for answer in answers(400, length=10, sure=0.9)]
    again = [replace(a, temperature=0.9) for a in answers(600, length=10, sure=0.9)]
    assert said(answers(200), other, again) == [
        (400, "cannot_tell", "cannot_tell"), (600, "calm", "as_before"),
    ]  # fmt: skip


def of_set(name, made):
    """The same answers, to the prompts of another set."""
    return [replace(answer, prompt_id=f"{name}-{answer.prompt_id}") for answer in made]


def test_prompt_sets_that_take_turns_have_a_reference_each():
    turns = [answers(200), of_set("b", answers(300))]
    for i in range(1, 4):
        turns += [answers(200 + 200 * i), of_set("b", answers(300 + 200 * i))]
    found = said(*turns)
    assert found[0] == (300, "cannot_tell", "cannot_tell")
    assert {judgement for _, judgement, _ in found[1:]} == {"calm"}
    shorter = [answers(1000, length=20, sure=0.8, nll=2.5), of_set("b", answers(1100))]
    assert [j for _, j, _ in said(*turns, *shorter)][-2:] == ["bad", "calm"]
    worse = of_set("b", answers(1100, length=20, sure=0.8, nll=2.5))
    _, effects = engine_with(*turns, worse, answers(1200), of_set("b", answers(1300, length=20)))
    (alert,) = opened(effects)
    assert alert.onset_step == 901  # after the last of its own set that was as before


def test_a_set_of_which_most_was_exchanged_is_compared_from_there_on():
    def exchanged(made):
        return made[:3] + of_set("new", made[3:])

    days = [answers(200), exchanged(answers(400)), exchanged(answers(600)),
            exchanged(answers(800, length=20, sure=0.8, nll=2.5))]  # fmt: skip
    assert [j for _, j, _ in said(*days)] == ["cannot_tell", "calm", "bad"]


def test_the_set_that_has_not_come_up_for_longest_gives_way():
    many = [of_set(str(i), answers(200 + i)) for i in range(5)]
    back = [of_set("4", answers(400)), of_set("0", answers(401))]
    assert [j for _, j, _ in said(*many, *back)][-2:] == ["calm", "cannot_tell"]


def test_few_prompts_tell_nothing():
    days = [answers(200, prompts=5), answers(400, prompts=5, length=5, sure=0.9)]
    assert said(*days)[0][1] == "cannot_tell"


def test_late_answers_for_old_steps_count_and_rewind_nothing():
    engine, effects = engine_with(answers(200), answers(600, length=20, sure=0.8, nll=2.5))
    assert opened(effects) == []
    before = (engine._frames.attempt, engine._frames._emitted)
    late = engine.feed(entry(9, answers(400, length=25, sure=0.75, nll=2.5), bystander=True))
    assert len(opened(late)) == 1
    assert (engine._frames.attempt, engine._frames._emitted) == before


def test_answers_of_an_abandoned_branch_are_ghosts():
    engine, effects = engine_with(answers(200))
    engine.feed(entry(3, [AttemptStart(2, 500, 0.0, "a0")], attempt="a1"))
    ghost = answers(600, length=20, sure=0.8, nll=2.5)
    ghost2 = answers(800, length=20, sure=0.8, nll=2.5)
    for pos, sampling in ((4, ghost), (5, ghost2)):
        effects += engine.feed(entry(pos, sampling, attempt="a0", bystander=True))
    assert opened(effects) == []
    for pos, step in ((6, 400), (7, 450)):  # but these weights are ours
        kept = answers(step, length=20, sure=0.8, nll=2.5)
        effects += engine.feed(entry(pos, kept, attempt="a0", bystander=True))
    assert len(opened(effects)) == 1


def test_a_repeat_of_a_sampling_is_judged_once():
    bad = answers(400, length=20, sure=0.8, nll=2.5)
    assert len(said(answers(200), bad, bad, bad)) == 1


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_however_it_is_cut_the_judgements_are_the_same(cut):
    bad = [answers(400, length=20, sure=0.8, nll=2.5), answers(600, length=20, sure=0.8, nll=2.5)]
    whole = said(answers(200), *bad)
    pieces = [part for s in (answers(200), *bad) for part in (s[:cut], s[cut:])]
    assert said(*pieces) == whole


def test_a_sampling_cut_off_by_its_time_limit_is_judged_at_the_phases_end():
    first, cut = answers(200), answers(400, length=20, sure=0.8, nll=2.5)[:9]
    end = Phase("p", "sampling", 400, 0.0, 400, 1.0)
    assert said(first, [*cut, end])[0][1] == "bad"


def test_a_snapshot_goes_on_as_if_nothing_had_happened():
    days = [answers(200), *(answers(s, length=20, sure=0.8, nll=2.5) for s in (400, 600))]
    whole, effects = engine_with(*days)
    engine, first = engine_with(days[0], days[1][:4])
    again = DetectionEngine("run", {"answers_drift": load_detector("answers_drift")})
    assert again.restore(json.loads(json.dumps(engine.snapshot())))
    rest = again.feed(entry(4, days[1][4:])) + again.feed(entry(5, days[2]))
    assert [a.opened_step for a in opened(first + rest)] == [a.opened_step for a in opened(effects)]
    del whole


def test_the_rank_sum_is_exact_for_few_pairs():
    assert rank_sum_p([1, 2, 3]) == pytest.approx(1 / 8)
    assert rank_sum_p([1, 2, -3]) == pytest.approx(5 / 8)
    assert rank_sum_p([0, 0]) == 1.0
    assert rank_sum_p([1.0] * 8) == pytest.approx(1 / 256)
    many = [random.Random(3).gauss(0.3, 1) for _ in range(60)]
    assert rank_sum_p(many) == pytest.approx(rank_sum_p([*many, 1e-9]), abs=0.02)  # exact, normal


def test_holm_corrects_for_the_number_of_tests():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06}
    )
    assert effect([1.0, 1.0]) == math.inf
    assert effect([]) == 0.0


def uneven(step, nll, sampling=None):
    """Surer by 0.065 in the mean, prompt by prompt very unlike: half gain a lot, half lose some."""
    made = answers(step, nll=nll, prompts=100, seed=1)
    sizes = [len(one.token_logprobs) for one in made]
    before = [math.exp(one.token_logprobs[0]) for one in answers(200, prompts=100)]
    after = [p + (0.25 if i % 2 else -0.12) for i, p in enumerate(before)]
    return [
        replace(one, token_logprobs=[math.log(p)] * size)
        for one, p, size in zip(made, after, sizes, strict=True)
    ]


def test_proven_worse_needs_no_large_effect():
    base = answers(200, prompts=100)
    assert said(base, uneven(400, nll=2.4))[0][1] == "calm"
    (found,) = said(base, uneven(400, nll=2.6))
    assert found[1:] == ("bad", "surer")


def test_the_same_reference_under_several_decodings_proves_nothing_more():
    """Four references, each under three decodings: twelve answers, and four measurements."""

    def three(step, nll, sure=0.45):
        made = answers(step, nll=nll, prompts=4, sure=sure)
        return [
            replace(one, prompt_id=f"{one.prompt_id} ({n})", sampling_size=12, seed=n)
            for one in made
            for n in range(3)
        ]

    # If it were proven better, what follows would be compared with it, and be worse.
    days = [three(200, 2.6), three(400, 2.2), three(600, 2.4, sure=0.7)]
    assert [judgement for _, judgement, _ in said(*days)] == ["calm", "calm"]
