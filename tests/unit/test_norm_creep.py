"""Norms that creep under a constant rate, a schedule that falls, a gradient that grows smoothly."""

from __future__ import annotations

import math
import random

import pytest

from monitor.detectors import DETECTORS, load_detector
from monitor.detectors.base import RunFacts, StepFrame, Verdict

Values = dict[str, float]
GROUPS = ("mlp_in", "attn_qkv")


def told(name: str, steps: int, values: object) -> list[Verdict]:
    """What a judge finds bad in a run of so many steps."""
    detector = load_detector(name)(RunFacts("run", "pretrain", {"planned_steps": steps}))
    found: list[Verdict] = []
    for step in range(1, steps + 1):
        frame = StepFrame("a", 0, step, 1000.0 + step, values(step))  # type: ignore[operator]
        found += [v for v in detector.update(frame) if v.judgement == "bad"]
    return found


def creep(norm: float, rate: float) -> Values:
    """An update of 0.01 at the rate 1e-3, and in proportion to it."""
    change = 0.01 * rate / 1e-3
    found = {"lr/all": rate, "loss/train": 2.0}
    for group in GROUPS:
        found[f"weight_norm/{group}"] = norm
        found[f"update_ratio/{group}"] = change / norm
        found[f"effective_lr/{group}"] = change / norm
    return found


def test_the_ratio_halves_as_the_norm_doubles() -> None:
    assert creep(10.0, 1e-3)["update_ratio/mlp_in"] == pytest.approx(1.0e-3)
    assert creep(20.0, 1e-3)["update_ratio/mlp_in"] == pytest.approx(5.0e-4)


def test_a_norm_that_doubles_at_a_constant_rate_opens_where_the_rotation_has_halved() -> None:
    """From 10 to 20 in the 1,000 steps after the warm-up, which is what it is compared with."""
    begin = 200
    detector = load_detector("effective_lr_decay")(RunFacts("run", "pretrain", {}))
    opened = []
    for step in range(begin + 1200):
        norm = 10.0 + max(0, step - begin) / 100
        frame = StepFrame("a", 0, step, float(step), creep(norm, 1e-3))
        opened += [
            v.step for v in detector.update(frame)
            if v.judgement == "bad" and v.reason == "rotation_per_lr"
        ]  # fmt: skip
    assert begin + 1000 <= opened[0] <= begin + 1050


def test_the_same_fall_by_the_schedule_opens_nothing() -> None:
    def values(step: int) -> Values:
        return creep(10.0, 1e-3 / (1.0 + step / 1000))

    found = told("effective_lr_decay", 1500, values)
    assert [v for v in found if v.reason == "rotation_per_lr"] == []


@pytest.mark.parametrize("name", sorted(set(DETECTORS) - {"run_silent"}))
def test_a_gradient_norm_that_grows_threefold_smoothly_opens_nothing(name: str) -> None:
    source = random.Random(3)

    def values(step: int) -> Values:
        noise = math.exp(source.gauss(0, 0.05))
        return {
            "lr/all": 1e-3,
            "loss/train": 2.0 + 4.0 * (step + 20) ** -0.4 + source.gauss(0, 0.02),
            "grad_norm/total": noise * (1.0 + 2.0 * step / 10_000),
        }

    assert told(name, 10_000, values) == []
