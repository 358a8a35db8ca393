"""Resumed runs: from the right weights nothing is said, from others at once, and which."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import Evidence, RunFacts, StepFrame, Verdict
from monitor.services.backtest import chosen_detectors
from monitor.services.judging import DetectionEngine
from tests.fixtures.traces import entries, judge, read_rows

RUNS = Path(__file__).parents[1] / "runs"
RESUME = 401
Values = dict[str, float]


@pytest.mark.parametrize("name", ["real/healthy_llmc_gpt2_124m", "more/healthy_kuixing_lm"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("back", [0, 40])
def test_a_sound_run_cut_in_two_goes_on(name: str, share: float, back: int) -> None:
    rows = read_rows(RUNS / f"{name}.csv.gz")
    cut = int(share * len(rows))
    log = entries(rows[max(cut - 1000, 0) : cut])
    rest = rows[cut - back : cut + 400]
    log += entries(rest, attempt="a1", ordinal=1, first_pos=len(log) + 1)
    assert judge(log, DetectionEngine("run", chosen_detectors(["resume_jump"]))) == []


def told(after: Callable[[int], Values]) -> list[Verdict]:
    """A run of noisy batches resumed at 401: ``after`` are values to put in their place."""
    judge, noise = load_detector("resume_jump")(RunFacts("run", "pretrain", {})), random.Random(2)
    out = []
    for step in range(1, 700):
        values = {
            "loss/train": 2.15 + noise.gauss(0.0, 0.14),
            "grad_norm/total": 0.85,
            "lr/a": 1e-3,
        }
        if step % 25 == 0:
            values["loss/probe"] = 2.2 + noise.gauss(0.0, 0.004)
        if step % 20 == 0:
            values |= {"weight_norm/total": 30.0 + 0.02 * step, "update_ratio/total": 5e-3}
        if step >= RESUME:
            values |= {key: v for key, v in after(step).items() if v or key in values}
        attempt = "a0" if step < RESUME else "a1"
        out += judge.update(StepFrame(attempt, int(step >= RESUME), step, float(step), values))
    return [verdict for verdict in out if verdict.judgement == "bad"]


def evidence(verdict: Verdict) -> Evidence:
    assert verdict.evidence is not None
    return verdict.evidence


def test_a_jump_as_small_as_the_noise_shows_as_its_points_grow_in_number() -> None:
    noise = random.Random(4)
    older = lambda s: {  # noqa: E731
        "loss/train": 2.36 + noise.gauss(0.0, 0.14),
        **({"weight_norm/total": 30.0} if s % 20 == 0 else {}),
    }
    found = told(older)
    assert RESUME < found[0].step <= RESUME + 50
    assert evidence(found[0]).onset_step == RESUME
    assert "another checkpoint" in evidence(found[-1]).causes[0].text


def test_a_probe_that_jumped_needs_one_value() -> None:
    found = told(lambda s: {"loss/probe": 2.45} if s == RESUME or s % 25 == 0 else {})
    assert found[0].step == RESUME
    assert "loss/probe is 2.450, it was 2.1" in evidence(found[0]).summary


def test_a_loss_that_is_counted_twice_is_named() -> None:
    found = told(lambda s: {"loss/train": 4.3 + 0.01 * (s % 7), "grad_norm/total": 1.75})
    assert found[0].step <= RESUME + 4
    assert "counted 2 times" in evidence(found[0]).causes[0].text
    other = told(lambda s: {"loss/train": 3.2 + 0.01 * (s % 7)})
    assert "counted" not in evidence(other[0]).causes[0].text


def test_an_optimizer_without_its_state_is_named() -> None:
    found = told(lambda s: {
        "loss/train": 2.9 + 0.01 * (s % 7), "grad_norm/total": 8.0 if s == RESUME + 1 else 0.9,
        **({"update_ratio/total": 0.02} if s in (RESUME, 420) else {}),
    })  # fmt: skip
    assert "state was lost" in evidence(found[0]).causes[0].text
    assert evidence(found[0]).causes[0].signs_seen == 2
