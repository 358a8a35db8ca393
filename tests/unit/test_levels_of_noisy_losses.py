"""Losses of single batches that swing by half: their median tells what no point of them does."""

from __future__ import annotations

import random

from monitor.detectors import load_detector
from monitor.detectors.base import RunFacts, StepFrame, Verdict

ONSET = 600


def told(factor: float, steps: int = 1400, end: int = 10_000) -> list[Verdict]:
    """A loss with a skewed tail, raised by a factor from step 600 on."""
    judge, noise = load_detector("loss_spike")(RunFacts("run", "pretrain", {})), random.Random(8)
    out = []
    for step in range(steps):
        loss = (1.0 + 3.0 * (step + 30) ** -0.4) * noise.lognormvariate(0.0, 0.35)
        loss *= factor if ONSET <= step < end else 1.0
        frame = StepFrame("a0", 0, step, float(step), {"loss/train": loss, "lr/all": 1e-3})
        out += judge.update(frame)
    return [verdict for verdict in out if verdict.judgement == "bad"]


def test_a_level_that_rises_by_half_is_told_within_its_points() -> None:
    found = told(1.8, end=800)
    assert found[0].evidence is not None
    assert ONSET < found[0].step <= ONSET + 24
    assert abs((found[0].evidence.onset_step or 0) - ONSET) <= 10
    assert found[0].evidence.rule == "level_up"
    assert "the median of the last 16" in found[0].evidence.summary
    assert found[-1].step <= 830


def test_swings_of_single_batches_are_left_alone() -> None:
    assert told(1.0, 6000) == []
    assert told(1.04) == []
