"""What stands still is told at the sample that shows it, with the step it can have begun at."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import Evidence, RunFacts, StepFrame, Verdict

EVERY = 20
FAULT = 301
Values = dict[str, float]


def told(values: Callable[[int], Values], steps: int = 800) -> list[Verdict]:
    judge = load_detector("dead_update")(RunFacts("run", "pretrain", {}))
    given = [StepFrame("a0", 0, s, float(s), {"lr/all": 1e-3} | values(s)) for s in range(1, steps)]
    return [v for frame in given for v in judge.update(frame) if v.judgement == "bad"]


def evidence(verdict: Verdict) -> Evidence:
    assert verdict.evidence is not None
    return verdict.evidence


def shares(of: Callable[[int, str], float]) -> Callable[[int], Values]:
    """Coverage of four groups at every 20th step, with the noise that unused rows make."""
    noise = random.Random(3)

    def values(step: int) -> Values:
        if step % EVERY:
            return {}
        found = {f"update_coverage/{g}": of(step, g) for g in ("emb", "norm", "attn_o", "mlp_in")}
        return {key: min(1.0, v + noise.uniform(-3e-4, 3e-4)) for key, v in found.items()}

    return values


def test_a_layer_that_freezes_is_told_at_the_next_sample() -> None:
    frozen = shares(lambda s, g: 2 / 3 if s >= FAULT and g != "emb" else 1.0)
    found = told(frozen)
    first = [v for v in found if v.step == found[0].step]
    assert {(v.step, v.subject) for v in first} == {
        (320, "norm coverage"), (320, "attn_o coverage"), (320, "mlp_in coverage"),
    }  # fmt: skip
    assert {(evidence(v).rule, evidence(v).onset_step) for v in found} == {("frozen_part", FAULT)}
    assert "frozen" in evidence(found[0]).causes[0].text


def test_rounding_that_begins_all_at_once_is_no_frozen_layer() -> None:
    rounded = shares(lambda s, g: {"emb": 0.25, "norm": 0.0}.get(g, 0.6) if s >= FAULT else 1.0)
    found = told(rounded)
    assert found[0].step == 320
    assert {evidence(v).rule for v in found} == {"rounded_away"}
    assert "bfloat16" in evidence(found[0]).causes[0].text


def test_one_layer_of_thirty_two_shows_once_it_stays_away() -> None:
    found = told(shares(lambda s, g: 31 / 32 if s >= FAULT and g != "emb" else 1.0))
    assert (found[0].step, evidence(found[0]).onset_step) == (360, FAULT)
    assert evidence(found[0]).rule == "frozen_part"


def test_a_share_that_only_wavers_is_left_alone() -> None:
    noise = random.Random(5)
    assert told(shares(lambda s, g: 1.0 - noise.uniform(0.0, 0.02))) == []


def test_a_rate_that_was_cut_may_take_updates_with_it() -> None:
    """Rounding takes more at a tenth of the rate; one sample does not make that a fault."""
    values = shares(lambda s, g: 0.85 if s >= FAULT and g == "norm" else 1.0)
    cut = lambda s: values(s) | {"lr/all": 1e-4 if s >= FAULT else 1e-3}  # noqa: E731
    assert [v.step for v in told(cut, 359)] == []


@pytest.mark.parametrize(("grads", "at"), [({"grad_norm/mlp_in": 0.4}, 320), ({}, 340)])
def test_a_group_at_exactly_zero_needs_a_gradient_to_be_told_at_once(
    grads: Values, at: int
) -> None:
    def values(step: int) -> Values:
        if step % EVERY:
            return {}
        moved = 0.0 if step >= FAULT else 1e-3
        return {"update_ratio/mlp_in": moved, "update_ratio/attn_o": 1e-3} | grads

    found = told(values)
    assert (found[0].step, found[0].subject) == (at, "mlp_in")
    assert evidence(found[0]).onset_step == FAULT
