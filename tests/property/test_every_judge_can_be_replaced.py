"""Every judge of the table, replaced by a successor at any step, goes on as if nothing had been."""

from __future__ import annotations

import json
import math
import random
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.detectors import DETECTORS, load_detector
from monitor.detectors.base import RunFacts, StepEvent, StepFrame, Verdict
from monitor.domain.series import matches
from trainer_hooks.wire import to_plain

STEPS = 1200
FACTS = {
    "optimizer": "AdamW", "planned_steps": STEPS, "config": {"weight_decay": 0.1},
    "declared_epochs": 1.0,
}  # fmt: skip


def _values(step: int, noise: random.Random) -> dict[str, float]:
    """A run in which much goes wrong, one thing after another."""
    loss = (2.0 + 4.0 * (step + 20) ** -0.5) * noise.gauss(1.0, 0.01)
    loss *= 1.8 if 400 <= step < 440 else 1.0 + 3e-4 * max(step - 700, 0)
    values = {
        "loss/train": loss, "lr/all": 1e-3, "grad_norm/total": 20.0 if step == 400 else 1.0,
        "repeat_share": 1.0 if 550 <= step < 600 else 0.0, "step_s": 0.1, "tokens_per_s": 1e4,
        "data_wait_s": 0.01, "source_share@code": 0.3 if step < 800 else 0.0,
        "batch_unigram_kl": 0.02, "doc_len": 400.0, "tokens_seen": 1024.0 * step,
    }  # fmt: skip
    if step % 10 == 0:
        for group in ("mlp_in", "attn_qkv"):
            values[f"weight_norm/{group}"] = 10.0 + step / 50
            values[f"effective_lr/{group}"] = 0.01 / (10.0 + step / 50)
            values[f"update_ratio/{group}"] = 0.01 / (10.0 + step / 50)
    if step % 25 == 0:
        rise = 1e-3 * max(step - 600, 0) + (0.6 if step >= 1000 else 0.0)
        values |= {
            "loss/heldout": 2.0 + 4.0 * (step + 20) ** -0.5 + rise, "loss/probe": 2.5 - 1e-3 * step,
            "loss/probe@code": 2.0 + 2e-3 * max(step - 600, 0), "loss/probe@web": 3.0 - 3e-3 * step,
            "entropy_minus_nll/probe": -0.4 if step > 900 else 0.0, "top1/probe": 0.4,
            "logit_max/probe": 8.0 + 1e-5 * step**2, "logsumexp/probe": 6.0,
        }  # fmt: skip
    return values


@cache
def run() -> tuple[StepFrame, ...]:
    noise, frames = random.Random(7), []
    for step in [*range(500), *range(480, STEPS)]:
        second = len(frames) >= 500
        values = _values(step, noise)
        if step == 300:
            values["loss/train"] = math.nan
        events = (StepEvent("event", "data_stall", 1000.0 + step, data={"wait_s": 3.0}),)
        frames.append(
            StepFrame(
                "a1" if second else "a0", int(second), step, 1000.0 + len(frames), values,
                events if step == 540 else (),
            )
        )  # fmt: skip
    return tuple(frames)


def needed(name: str) -> list[StepFrame]:
    patterns = load_detector(name).needs
    return [
        StepFrame(
            f.attempt, f.ordinal, f.step, f.t,
            {key: v for key, v in f.values.items() if matches(key, patterns)}, f.events,
        )
        for f in run()
    ]  # fmt: skip


@cache
def expected(name: str) -> list[Verdict]:
    detector = load_detector(name)(RunFacts("run", "pretrain", FACTS))
    return [verdict for frame in needed(name) for verdict in detector.update(frame)]


@pytest.mark.parametrize("name", DETECTORS)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=st.sets(st.integers(0, STEPS), max_size=5))
def test_replaced_at_any_step(name: str, cuts: set[int]) -> None:
    cls = load_detector(name)
    detector = cls(RunFacts("run", "pretrain", FACTS))
    told: list[Verdict] = []
    for index, frame in enumerate(needed(name)):
        if index in cuts:
            state = json.loads(json.dumps(to_plain(detector.snapshot()), allow_nan=False))
            detector = cls(RunFacts("run", "pretrain", FACTS))
            detector.restore(state)
        told += detector.update(frame)
    assert told == expected(name)


@pytest.mark.parametrize(
    "name",
    ["loss_spike", "divergence", "slow_drift", "train_heldout_gap", "effective_lr_decay",
     "source_regression", "data_drift"],
)  # fmt: skip
def test_the_run_gives_it_something_to_say(name: str) -> None:
    assert any(verdict.judgement == "bad" for verdict in expected(name))
