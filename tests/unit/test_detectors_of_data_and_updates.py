"""Judges of the loader, of templates, of updates and of ranks, on small made-up series."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import Detector, Evidence, RunFacts, StepEvent, StepFrame, Verdict

Values = dict[str, float]
Events = dict[int, tuple[StepEvent, ...]]


def frames(
    steps: Sequence[int],
    values: Callable[[int], Values],
    events: Events | None = None,
    attempt: str = "a0",
) -> list[StepFrame]:
    told = events or {}
    return [StepFrame(attempt, 0, s, 1000.0 + s, values(s), told.get(s, ())) for s in steps]


def made(name: str, kind: str = "pretrain", **facts: Any) -> Detector:
    return load_detector(name)(RunFacts("run", kind, facts))


def judged(detector: Detector, given: Sequence[StepFrame]) -> list[Verdict]:
    """All verdicts; the judge is replaced by its own snapshot every 61 frames on the way."""
    out: list[Verdict] = []
    facts = RunFacts("run", "pretrain", getattr(getattr(detector, "_facts", None), "facts", {}))
    for index, frame in enumerate(given):
        if index % 61 == 60:
            state = json.loads(json.dumps(detector.snapshot(), allow_nan=False))
            detector = type(detector)(facts)
            detector.restore(state)
        out += detector.update(frame)
    return out


def bad(verdicts: Sequence[Verdict], subject: str | None = None) -> list[Verdict]:
    return [
        v for v in verdicts if v.judgement == "bad" and (subject is None or v.subject == subject)
    ]


def evidence(verdict: Verdict) -> Evidence:
    assert verdict.evidence is not None
    assert verdict.evidence.summary
    assert verdict.evidence.causes or verdict.severity == "info"
    return verdict.evidence


# -- data_stall -----------------------------------------------------------------------------------


def waits(wait: Callable[[int], float], step_s: float = 0.1) -> Callable[[int], Values]:
    return lambda s: {"data_wait_s": wait(s), "step_s": max(step_s, wait(s) + 0.05)}


def test_a_ready_loader_is_no_stall_whatever_the_device_does() -> None:
    assert bad(judged(made("data_stall"), frames(range(600), waits(lambda s: 0.001)))) == []


def test_a_loader_slower_than_the_loop_is_starvation_from_its_first_wait() -> None:
    given = frames(range(600), waits(lambda s: 0.03 if s >= 300 else 0.0005))
    first = bad(judged(made("data_stall"), given))[0]
    assert (first.reason, first.severity) == ("starved", "warning")
    assert evidence(first).onset_step == 300
    assert first.step <= 330
    assert "too slow on average" in evidence(first).causes[0].text


def test_one_long_wait_is_an_event_and_not_starvation() -> None:
    given = frames(range(600), waits(lambda s: 20.0 if s == 300 else 0.0005))
    assert bad(judged(made("data_stall"), given)) == []


def test_a_wait_as_long_as_many_steps_is_told_once() -> None:
    given = frames(range(600), waits(lambda s: 210.0 if s == 300 else 0.01, step_s=2.0))
    (only,) = bad(judged(made("data_stall"), given))
    assert (only.step, only.severity, only.reason) == (300, "info", "single_stall")
    assert "stalled for 4 min" in only.title


@pytest.mark.parametrize("name", ["evaluation", "checkpoint", "sampling"])
def test_waits_in_announced_phases_are_no_stalls(name: str) -> None:
    events: Events = {}
    for begin in range(200, 600, 25):
        events[begin] = (StepEvent("phase", name, 0.0), StepEvent("phase_end", name, 0.0))
    slow = waits(lambda s: 0.5 if s >= 200 and s % 25 in (0, 1) else 0.0005)
    assert bad(judged(made("data_stall"), frames(range(600), slow, events))) == []
    assert bad(judged(made("data_stall"), frames(range(600), slow)))


def test_waiting_ends_below_two_per_cent() -> None:
    given = frames(range(900), waits(lambda s: 0.03 if 300 <= s < 500 else 0.0005))
    verdicts = judged(made("data_stall"), given)
    last = max(v.step for v in bad(verdicts))
    assert 540 <= last <= 600
    assert any(v.reason == "fed" and v.step > last for v in verdicts)


def curve(step: int) -> float:
    return 2.0 + 4.0 * (step + 1) ** -0.5


def stalled_run(probe: Callable[[int], float], stall_s: float = 8.0) -> list[StepFrame]:
    """A probe every 50 steps, a stall at 1000."""
    noise = random.Random(3)

    def values(s: int) -> Values:
        got = {"data_wait_s": stall_s if s == 1000 else 0.001, "step_s": 0.1}
        got["step_s"] += got["data_wait_s"]
        if s % 50 == 0:
            got["loss/probe"] = probe(s) + noise.gauss(0, 0.001)
        return got

    stall = StepEvent("event", "data_stall", 2000.0, data={"wait_s": stall_s, "usual_s": 0.001})
    return frames(range(3000), values, {1000: (stall,)})


def test_progress_that_fell_after_a_stall_is_said_of_the_stall() -> None:
    verdicts = judged(made("data_stall"), stalled_run(lambda s: curve(min(s, 1000))))
    first = bad(verdicts, "after a stall")[0]
    assert (first.severity, first.reason) == ("warning", "progress_fell")
    assert evidence(first).onset_step == 1000
    assert first.step <= 1600
    assert "fell 1" in evidence(first).summary or "fell 9" in evidence(first).summary


def test_a_stall_without_lasting_effect_is_an_information_once() -> None:
    (only,) = bad(judged(made("data_stall"), stalled_run(curve)))
    assert (only.severity, only.reason) == ("info", "no_lasting_effect")
    assert evidence(only).onset_step == 1000


def test_a_cheap_stall_that_did_no_harm_is_not_mentioned() -> None:
    assert bad(judged(made("data_stall"), stalled_run(curve, stall_s=0.8))) == []


def test_what_a_stall_did_cannot_be_told_in_noise() -> None:
    noise = random.Random(5)
    verdicts = judged(made("data_stall"), stalled_run(lambda s: curve(s) + noise.gauss(0, 0.3)))
    assert bad(verdicts) == []
    (unsure,) = [v for v in verdicts if v.judgement == "cannot_tell" and v.subject]
    assert "stall at step 1,000" in evidence_text(unsure)


def evidence_text(verdict: Verdict) -> str:
    assert verdict.evidence is not None
    return verdict.evidence.summary


# -- template_leak --------------------------------------------------------------------------------


def rows(share: Callable[[int], float], seed: int = 1) -> Callable[[int], Values]:
    """Batches of 16 rows with so many templates among them."""
    draw = random.Random(seed)
    return lambda s: {"template_share": sum(draw.random() < share(s) for _ in range(16)) / 16}


def test_templates_above_the_first_batches_share() -> None:
    given = frames(range(700), rows(lambda s: 0.3 if s >= 400 else 0.01))
    first = bad(judged(made("template_leak"), given))[0]
    assert first.severity == "warning"
    assert 400 <= first.step <= 420
    assert abs((evidence(first).onset_step or 0) - 400) <= 5


def test_ordinary_text_with_some_template_strings_is_left_alone() -> None:
    assert bad(judged(made("template_leak"), frames(range(2000), rows(lambda s: 0.02)))) == []


def test_a_declared_share_is_no_leak_and_more_is() -> None:
    facts = {"config": {"declared_template_share": 0.3}}
    sound = frames(range(700), rows(lambda s: 0.3))
    assert bad(judged(made("template_leak", **facts), sound)) == []
    more = frames(range(700), rows(lambda s: 0.6 if s >= 400 else 0.3))
    assert bad(judged(made("template_leak", **facts), more))[0].step <= 425


def test_chat_data_from_the_start_that_nobody_declared_is_an_information() -> None:
    verdicts = bad(judged(made("template_leak"), frames(range(400), rows(lambda s: 0.4))))
    assert {(v.severity, v.subject) for v in verdicts} == {("info", "start")}


def test_a_training_loss_that_falls_alone_makes_a_leak_critical() -> None:
    share = rows(lambda s: 0.3 if s >= 400 else 0.0)

    def values(s: int) -> Values:
        got = {**share(s), "loss/train": 1.7 if s >= 400 else 2.3}
        return got | ({"loss/probe": 2.3} if s % 50 == 0 else {})

    verdicts = bad(judged(made("template_leak"), frames(range(800), values)))
    assert verdicts[0].severity == "warning"
    assert verdicts[-1].severity == "critical"
    assert "against the held-out one" in evidence(verdicts[-1]).summary


def test_fine_tuning_is_made_of_templates() -> None:
    assert "sft" not in load_detector("template_leak").kinds
    assert "rl" not in load_detector("template_leak").kinds


def test_answers_that_begin_to_speak_in_templates() -> None:
    given = frames(
        range(0, 5000, 500), lambda s: {"template_share/answers": 0.25 if s >= 2500 else 0.0}
    )
    first = bad(judged(made("template_leak"), given))[0]
    assert (first.subject, first.step) == ("answers", 2500)


def sampling(step: int, marks: Sequence[int]) -> StepFrame:
    told = tuple(
        StepEvent("answer", f"p{i}", 0.0, data={
            "sampling": f"s{step}", "size": len(marks), "step": step, "templates": n,
        })
        for i, n in enumerate(marks)
    )  # fmt: skip
    return StepFrame("a0", 0, step, float(step), {}, told)


def test_marks_in_sampled_answers_are_counted_sampling_by_sampling() -> None:
    given = [
        sampling(100, [0] * 8),
        sampling(200, [0] * 8),
        sampling(300, [0, 2, 1, 0, 0, 0, 1, 0]),
    ]
    (only,) = bad(judged(made("template_leak"), given))
    assert (only.subject, only.step) == ("answers", 300)
    assert "38 % of the sampled answers" in evidence(only).summary


# -- dead_update ----------------------------------------------------------------------------------

GROUPS = ("attn_qkv", "mlp_in", "total")


def updates(ratio: Callable[[int, str], float], rate: float = 1e-3) -> Callable[[int], Values]:
    def values(s: int) -> Values:
        got = {"lr/group0": rate}
        if s % 10 == 0:
            got |= {f"update_ratio/{group}": ratio(s, group) for group in GROUPS}
        return got

    return values


def test_a_step_that_changes_nothing_is_critical_at_the_second_sample() -> None:
    given = frames(range(500), updates(lambda s, g: 0.0 if s >= 300 else 1e-3))
    first = bad(judged(made("dead_update"), given))[0]
    assert (first.step, first.severity, first.subject) == (310, "critical", "")
    assert evidence(first).onset_step == 291  # the step after the last sample that moved


def test_one_group_that_stands_still_is_named_alone() -> None:
    dead = updates(lambda s, g: 0.0 if s >= 300 and g == "mlp_in" else 1e-3)
    verdicts = bad(judged(made("dead_update"), frames(range(500), dead)))
    assert {(v.subject, v.severity) for v in verdicts} == {("mlp_in", "warning")}


def test_steps_that_mixed_precision_skipped_are_no_dead_updates() -> None:
    alive = updates(lambda s, g: 0.0 if s % 50 == 0 else 1e-3)
    skipped = frames(range(500), lambda s: alive(s) | {"update_skipped": float(s % 50 == 0)})
    assert bad(judged(made("dead_update"), skipped)) == []


def test_the_first_row_with_a_rate_of_zero_is_a_warm_up() -> None:
    given = frames(range(300), lambda s: {"lr/group0": 1e-5 * s, "update_ratio/total": 1e-6 * s})
    assert bad(judged(made("dead_update"), given)) == []


@pytest.mark.parametrize(("end", "opens"), [(1000, False), (600, True)])
def test_a_rate_of_zero_is_dead_before_the_planned_end_only(end: int, opens: bool) -> None:
    rate = lambda s: max(0.0, 1e-3 * (1 - s / end)) if s < end else 0.0  # noqa: E731
    given = frames(range(1020), lambda s: {"lr/group0": rate(s)})
    found = bad(judged(made("dead_update", planned_steps=1000), given))
    assert bool(found) is opens
    assert {v.subject for v in found} <= {"learning rate"}


def test_a_schedule_that_ends_at_zero_without_a_plan_is_not_judged() -> None:
    given = frames(range(1200), lambda s: {"lr/group0": max(0.0, 1e-3 * (1 - s / 1000))})
    assert bad(judged(made("dead_update"), given)) == []


def coverage(share: Callable[[int], float], group: str = "mlp_in") -> Callable[[int], Values]:
    return lambda s: (
        {"lr/group0": 1e-3}
        | ({f"update_coverage/{group}": share(s), "update_coverage/total": 0.5} if s % 10 == 0
           else {})
    )  # fmt: skip


def test_a_frozen_part_and_lost_updates_are_told_apart() -> None:
    frozen = bad(judged(made("dead_update"), frames(range(400), coverage(lambda s: 0.71))))[0]
    assert evidence(frozen).rule == "frozen_part"
    assert evidence(frozen).onset_step == 0
    fading = coverage(lambda s: max(0.1, 1.0 - s / 400))
    lost = bad(judged(made("dead_update"), frames(range(400), fading)))[0]
    assert evidence(lost).rule == "rounded_away"
    assert "bfloat16" in evidence(lost).causes[0].text


def test_rows_of_an_embedding_that_did_not_occur_are_no_dead_updates() -> None:
    given = frames(range(400), coverage(lambda s: 0.3, group="emb"))
    assert bad(judged(made("dead_update"), given)) == []
    alone = frames(range(400), lambda s: {"lr/group0": 1e-3, "update_coverage/mlp_in": 0.99})
    assert bad(judged(made("dead_update"), alone)) == []


def test_a_rate_off_its_schedule() -> None:
    given = frames(
        range(300),
        lambda s: {"lr/group0": 1e-3, "lr_scheduled/group0": 1e-3 if s < 200 else 1.05e-3},
    )
    first = bad(judged(made("dead_update"), given))[0]
    assert (first.subject, first.step, evidence(first).onset_step) == ("schedule", 202, 200)


# -- ranks ----------------------------------------------------------------------------------------


def test_replicas_that_differ_are_critical_at_once_and_the_odd_one_is_named() -> None:
    def values(s: int) -> Values:
        sums = {f"checksum@rank{r}": 100.0 + s for r in range(4)}
        return sums | ({"checksum@rank2": 100.1 + s} if s >= 300 else {})

    first = bad(judged(made("rank_desync"), frames(range(0, 500, 100), values)))[0]
    assert (first.step, first.severity) == (300, "critical")
    assert evidence(first).onset_step == 201  # the step after the last sample that was equal
    assert "equal until step 200; rank 2 against the others" in evidence(first).summary
    assert "all-reduce" in evidence(first).causes[0].text


def test_replicas_that_never_were_equal_began_apart() -> None:
    given = frames(range(0, 300, 100), lambda s: {"checksum/rank0": 1.0, "checksum/rank1": 2.0})
    first = bad(judged(made("rank_desync"), given))[0]
    assert first.step == 0
    assert "began with different weights" in evidence(first).causes[0].text


def test_equal_replicas_and_lone_ranks_are_left_alone() -> None:
    equal = frames(range(0, 500, 10), lambda s: {f"checksum@rank{r}": math.pi * s for r in (0, 1)})
    assert bad(judged(made("rank_desync"), equal)) == []
    lone = frames(range(0, 500, 10), lambda s: {"checksum@rank0": float(s)})
    assert bad(judged(made("rank_desync"), lone)) == []


def test_two_ranks_that_read_one_shard() -> None:
    def values(s: int) -> Values:
        return {f"batch_hash@rank{r}": float(1000 * s + (r if r != 3 else 1)) for r in range(4)}

    first = bad(judged(made("rank_twins"), frames(range(0, 100, 10), values)))[0]
    assert (first.subject, first.step, first.severity) == ("batches", 20, "critical")
    assert evidence(first).onset_step == 0
    assert "ranks 1 and 3" in evidence(first).summary.lower()
    assert "sampler does not know its rank" in evidence(first).causes[0].text


def test_one_equal_batch_is_padding_and_zero_shards_say_nothing() -> None:
    def values(s: int) -> Values:
        got = {f"batch_hash@rank{r}": float(s if s == 50 else 10 * s + r) for r in range(2)}
        return got | {f"shard_checksum@rank{r}": 0.0 for r in range(2)}

    assert bad(judged(made("rank_twins"), frames(range(10, 200, 10), values))) == []


def test_one_seed_on_all_tensor_parallel_ranks() -> None:
    given = frames(range(0, 100, 10), lambda s: {f"shard_checksum@rank{r}": 7.5 for r in range(4)})
    first = bad(judged(made("rank_twins"), given))[0]
    assert first.subject == "shards"
    assert "one seed" in evidence(first).causes[0].text


def rank_times(slow: Callable[[int, int], float], data: float = 0.0) -> Callable[[int], Values]:
    """Four ranks: own compute, data wait of rank 3, and the others' wait in the collective."""
    noise = random.Random(7)

    def values(s: int) -> Values:
        own = {r: 1.0 + noise.uniform(-0.02, 0.02) + slow(s, r) for r in range(4)}
        longest = max(own.values())
        got: Values = {}
        for rank, value in own.items():
            share = data if rank == 3 else 0.0
            got[f"data_wait_s@rank{rank}"] = 0.01 + share * slow(s, rank)
            got[f"compute_s@rank{rank}"] = value - share * slow(s, rank)
            got[f"collective_wait_s@rank{rank}"] = longest - value
            got[f"step_s@rank{rank}"] = longest
        return got

    return values


def test_the_slow_rank_is_the_culprit_and_not_those_that_wait_for_it() -> None:
    late = rank_times(lambda s, r: 0.5 if r == 3 and s >= 300 else 0.0)
    first = bad(judged(made("straggler"), frames(range(0, 900, 10), late)))[0]
    assert (first.subject, first.severity) == ("rank3", "warning")
    assert 430 <= first.step <= 450
    assert evidence(first).onset_step == 300
    assert "The others wait 0.5" in evidence(first).summary
    assert "GPU or host" in evidence(first).causes[0].text


def test_a_rank_that_waits_for_data_is_told_so() -> None:
    late = rank_times(lambda s, r: 0.5 if r == 3 else 0.0, data=1.0)
    first = bad(judged(made("straggler"), frames(range(0, 900, 10), late)))[0]
    assert "loader is slow" in evidence(first).causes[0].text


def test_work_that_goes_round_is_no_straggler() -> None:
    turn = rank_times(lambda s, r: 0.5 if r == (s // 10) % 4 else 0.0)
    assert bad(judged(made("straggler"), frames(range(0, 2000, 10), turn))) == []


def test_ranks_that_all_take_as_long_are_told_apart_by_their_waits_for_data() -> None:
    def values(s: int) -> Values:
        waits = {r: 0.33 if r == 1 else 0.01 for r in range(4)}
        return {
            f"{name}@rank{r}": value
            for r, wait in waits.items()
            for name, value in (("step_s", 0.38 + 0.001 * r), ("data_wait_s", wait))
        }

    first = bad(judged(made("straggler"), frames(range(0, 2000, 50), values)))[0]
    assert first.subject == "rank1"
    assert "loader is slow" in evidence(first).causes[0].text
