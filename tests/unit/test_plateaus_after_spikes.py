"""A loss that jumped and has not come back is no riddle: the plateau names its spike."""

from __future__ import annotations

import math
import random

from monitor.detectors import load_detector
from monitor.detectors.base import RunFacts, StepFrame, Verdict

SPIKE = 1500


def told(height: float, stays: bool) -> list[Verdict]:
    judge, noise = load_detector("loss_plateau")(RunFacts("run", "pretrain", {})), random.Random(3)
    out = []
    for step in range(0, 3000, 25):
        loss = 1.5 + 9.0 * (step + 60) ** -0.35 + noise.gauss(0.0, 0.003)
        if step >= SPIKE:
            stuck = 1.5 + 9.0 * (SPIKE + 60) ** -0.35 if stays else loss
            loss = stuck + height * math.exp(-(step - SPIKE) / 120) + noise.gauss(0.0, 0.003)
        frame = StepFrame("a0", 0, step, float(step), {"loss/heldout": loss, "lr/all": 1e-3})
        out += judge.update(frame)
    return [verdict for verdict in out if verdict.judgement == "bad"]


def test_the_spike_is_the_cause_and_the_onset() -> None:
    first = told(1.5, stays=True)[0]
    assert first.evidence is not None
    assert f"aftermath of a loss spike at step {SPIKE:,}" in first.evidence.causes[0].text
    assert first.evidence.onset_step == SPIKE


def test_a_plateau_without_one_stays_unexplained() -> None:
    first = told(0.0, stays=True)[0]
    assert first.evidence is not None
    assert "unexplained" in first.evidence.causes[0].text
