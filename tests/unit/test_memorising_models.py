"""A model that memorises and may grok yet: one word of patience, no alarm."""

from __future__ import annotations

import math
import random

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import RunFacts, StepFrame, Verdict

Values = dict[str, float]
STEPS = 2500


def grokking(step: int, noise: random.Random) -> Values:
    """Modular addition as measured: the batch loss falls, held-out ability comes 1,000 steps later,
    top-10 before top-1, and logits grow all along."""
    late = 1.0 / (1.0 + math.exp(-(step - 1300) / 110))
    memorised = 1.0 / (1.0 + math.exp(-(step - 700) / 200))
    values = {"loss/train": 4.2 * (1.0 - memorised) + 0.003 + abs(noise.gauss(0.0, 0.01))}
    if step % 25 == 0:
        loss = (4.2 + 1.6 * min(step / 600, 1.0)) * (1.0 - late) + 0.001
        values |= {
            "loss/probe": loss,
            "top1/probe": max(0.0, late**4 + noise.gauss(0.0, 0.001)),
            "top10/probe": min(1.0, 0.02 + late + abs(noise.gauss(0.0, 0.001))),
            "median_rank/probe": 1.0 + round(49 * (1.0 - late)),
            "entropy_minus_nll/probe": -2.8 * min(step / 800, 1.0) * (1.0 - late) + 0.2 * late,
            "logit_max/probe": 0.5 + 4.0 * min(step / 500, 1.0) + 0.008 * max(step - 500, 0),
            "logsumexp/probe": 4.2 + 0.6 * min(step / 600, 1.0) + 0.008 * max(step - 800, 0),
        }
    if step % 20 == 0:
        values |= {
            f"effective_lr/{group}": 2e-3 / (1.0 + max(step - 1700, 0) / 200)
            for group in ("mlp_in", "mlp_out")
        }
    return values | {"lr/all": 1e-3}


def told(name: str, values: list[Values]) -> list[Verdict]:
    judge = load_detector(name)(RunFacts("run", "pretrain", {}))
    frames = [StepFrame("a0", 0, s, float(s), v) for s, v in enumerate(values, start=1)]
    return [v for frame in frames for v in judge.update(frame) if v.judgement == "bad"]


@pytest.fixture(scope="module")
def run() -> list[Values]:
    noise = random.Random(6)
    return [grokking(step, noise) for step in range(1, STEPS)]


@pytest.mark.parametrize("name", ["overconfidence", "logit_growth", "effective_lr_decay"])
def test_it_is_left_alone(name: str, run: list[Values]) -> None:
    assert told(name, run) == []


def test_the_plateau_says_wait_and_why(run: list[Values]) -> None:
    found = told("loss_plateau", run)
    assert {(v.severity, v.reason) for v in found} == {("info", "top10_improving")}
    assert found[0].evidence is not None
    assert "memorises" in found[0].evidence.causes[0].text


def test_a_model_that_had_learnt_and_then_memorises_is_still_told_of(run: list[Values]) -> None:
    """As in repeated data: accuracy was there, sureness outruns it."""
    known = [
        v | ({"top1/probe": 0.42, "loss/probe": 2.5} if "top1/probe" in v else {}) for v in run
    ]
    assert told("overconfidence", known)
    unknown = [{key: x for key, x in v.items() if key != "top1/probe"} for v in run]
    assert told("overconfidence", unknown)


def test_logits_that_grow_while_no_loss_falls_are_still_told_of(run: list[Values]) -> None:
    flat = [v | {"loss/train": 2.5} | ({"loss/probe": 2.5} if "loss/probe" in v else {})
            for v in run]  # fmt: skip
    assert any(v.severity == "warning" for v in told("logit_growth", flat))
