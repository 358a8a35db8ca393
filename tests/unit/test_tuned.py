"""Detectors with other parameters than their own, before a run and in the middle of one."""

from __future__ import annotations

import json

import pytest

from monitor.detectors import DETECTORS, load_detector
from monitor.detectors.base import RunFacts
from monitor.detectors.stale_data import Params, StaleData
from monitor.detectors.tuned import WrongParameter, as_text, default_params, parameters, tuned
from tests.property.test_every_judge_can_be_replaced import FACTS, run
from trainer_hooks.wire import to_plain

RUN_FACTS = RunFacts("r", "pretrain", FACTS)


def other(value: object) -> str:
    """A value near by, as it is typed."""
    if isinstance(value, bool):
        return as_text(not value)
    if isinstance(value, int):
        return as_text(value + 1)
    if isinstance(value, float):
        return as_text(value * 0.97)
    if isinstance(value, tuple):
        return ",".join(other(one) for one in value)
    return str(value)


@pytest.mark.parametrize("name", DETECTORS)
def test_what_is_shown_is_what_can_be_typed(name: str) -> None:
    cls = load_detector(name)
    shown = {key: as_text(value) for key, value in parameters(cls).items()}
    if name == "user_rule":
        assert shown == {}
        return
    assert shown
    assert getattr(tuned(cls, shown)(RUN_FACTS), "params", default_params(cls)) == default_params(
        cls
    )


def test_one_is_changed_and_the_others_are_not() -> None:
    made = tuned(StaleData, {"batches_bad": " 7 "})(RUN_FACTS)
    assert isinstance(made, StaleData)
    assert made.params == Params(batches_bad=7)
    assert StaleData(RUN_FACTS).params == Params()
    assert tuned(StaleData, {}) is StaleData


def test_a_part_within_is_named_with_a_dot() -> None:
    spikes = load_detector("loss_spike")
    assert parameters(spikes)["heat.z"] == 6.0
    assert parameters(spikes)["hot_of"] == (3, 5)
    made = tuned(spikes, {"heat.z": "9", "hot_of": "4, 6"})(RUN_FACTS)
    assert (made.params.heat.z, made.params.hot_of) == (9.0, (4, 6))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing", "1"), ("repeat_share.z", "1"), ("batches_bad", "many"), ("batches_bad", "1.5"),
        ("batches_bad", "0"), ("repeat_share", "nan"), ("repeat_share", "inf"),
        ("repeat_share", "-0.1"), ("repeat_share", ""),
    ],
)  # fmt: skip
def test_what_it_cannot_be_is_said(name: str, text: str) -> None:
    with pytest.raises(WrongParameter, match=name.split(".")[0]):
        tuned(StaleData, {name: text})


@pytest.mark.parametrize(("name", "text"), [("heat", "1"), ("hot_of", ""), ("hot_of", "a,b")])
def test_nor_can_a_part_as_a_whole_or_an_empty_list(name: str, text: str) -> None:
    with pytest.raises(WrongParameter):
        tuned(load_detector("loss_spike"), {name: text})


@pytest.mark.parametrize("name", [name for name in DETECTORS if name != "user_rule"])
def test_every_judge_goes_on_under_other_parameters(name: str) -> None:
    cls = load_detector(name)
    judge, frames = cls(RUN_FACTS), run()
    half = len(frames) // 2
    for frame in frames[:half]:
        judge.update(frame)
    memory = json.loads(json.dumps(to_plain(judge.snapshot())))
    changes = {key: other(value) for key, value in parameters(cls).items()}
    successor = tuned(cls, changes)(RUN_FACTS)
    successor.restore(memory)
    for frame in frames[half:]:
        successor.update(frame)
