"""Steps at which the optimizer is given nothing are told so, and most of them are a warning."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from monitor.detectors import load_detector
from monitor.detectors.base import RunFacts, StepFrame, Verdict
from trainer_hooks.loop.instruments import Fuel


def optimizer_with(*grads: object) -> SimpleNamespace:
    return SimpleNamespace(param_groups=[{"params": [SimpleNamespace(grad=g) for g in grads]}])


def step(fuel: Fuel, optimizer: SimpleNamespace, *, within: object = None) -> bool:
    fuel.look(optimizer)
    if within is not None:
        optimizer.param_groups[0]["params"][0].grad = within
    return fuel.had_some(optimizer)


def test_an_optimizer_that_had_gradients_and_has_none_made_no_update() -> None:
    fuel, optimizer = Fuel(), optimizer_with(None, 1.0)
    assert step(fuel, optimizer)
    optimizer.param_groups[0]["params"][1].grad = None
    assert not step(fuel, optimizer)
    assert step(fuel, optimizer, within=2.0)  # a closure makes them within the step


def test_gradients_that_lie_elsewhere_are_not_missed() -> None:
    fuel, optimizer = Fuel(), optimizer_with(None, None)
    assert step(fuel, optimizer)
    assert step(fuel, optimizer)


def told(skipped: set[int], steps: int = 700) -> list[Verdict]:
    judge = load_detector("dead_update")(RunFacts("run", "pretrain", {}))
    out = []
    for s in range(1, steps):
        values = {"lr/all": 1e-3} | ({"update_skipped": 1.0} if s in skipped else {})
        out += judge.update(StepFrame("a0", 0, s, float(s), values))
    return [v for v in out if v.subject == "skipped steps" and v.judgement == "bad"]


def test_three_of_four_updates_thrown_away() -> None:
    found = told({s for s in range(301, 500) if s % 4})
    assert found[0].evidence is not None
    assert (found[0].severity, found[0].evidence.onset_step) == ("warning", 301)
    assert found[0].step <= 340
    assert 500 < found[-1].step < 550
    assert "without gradients or skipped" in found[0].evidence.causes[0].text


@pytest.mark.parametrize(
    "skipped",
    [
        set(range(1, 17)),  # a loss scale that is being searched for
        set(range(200, 700, 20)),  # skipped by design, ever again
        set(range(300, 320)),
    ],
)
def test_mixed_precision_skips_some_and_nobody_is_told(skipped: set[int]) -> None:
    assert told(skipped) == []
