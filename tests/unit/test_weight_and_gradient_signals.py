"""Norms by group, gradients before and after clipping, learning rates as applied."""

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from trainer_hooks.signals.base import AsleepError, Subject  # noqa: E402
from trainer_hooks.signals.gradient import Gradient  # noqa: E402
from trainer_hooks.signals.groups import named_parameters  # noqa: E402
from trainer_hooks.signals.learning_rate import LearningRate  # noqa: E402
from trainer_hooks.signals.weights import Weights  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def model():
    made = nn.ModuleDict(
        {"up_proj": nn.Linear(4, 4, bias=False), "lm_head": nn.Linear(4, 9, bias=False)}
    )
    for parameter in made.parameters():
        nn.init.ones_(parameter)
    return made


def subject_of(model, *optimizers):
    return Subject(model, optimizers, named_parameters(model, optimizers))


def plain(measured):
    return {key: float(value) for key, value in measured.items()}


def test_weight_norms_by_group_and_in_total(model):
    signal = Weights(subject_of(model))
    found = plain(signal.measure(1))
    assert found == {
        "weight_norm/mlp_in": 4.0,
        "weight_norm/head": 6.0,
        "weight_norm/total": pytest.approx(math.sqrt(52)),
        "weight_rms/mlp_in": 1.0,
        "weight_rms/head": 1.0,
    }
    assert set(found) == {spec.key for spec in signal.specs()}


def set_gradients(model, value):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)


def test_gradient_norms_are_those_the_optimizer_uses(model):
    signal = Gradient(subject_of(model))
    set_gradients(model, 0.5)
    signal.before_update(1)
    set_gradients(model, 99.0)  # what the loop does afterwards changes nothing
    assert plain(signal.measure(1)) == {"grad_norm/mlp_in": 2.0, "grad_norm/head": 3.0}
    assert signal.measure(2) == {}


def test_clipping_is_undone_where_the_total_from_before_is_known(model):
    subject = subject_of(model)
    signal = Gradient(subject)
    set_gradients(model, 0.5)
    subject.extras["grad_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    signal.before_update(1)
    found = plain(signal.measure(1))
    assert found["grad_norm/mlp_in"] == pytest.approx(2.0, rel=1e-4)
    assert found["grad_norm/head"] == pytest.approx(3.0, rel=1e-4)


def test_zero_gradients_stay_zero_whatever_total_is_told(model):
    subject = subject_of(model)
    subject.extras["grad_norm"] = 3.0
    signal = Gradient(subject)
    set_gradients(model, 0.0)
    signal.before_update(1)
    assert plain(signal.measure(1)) == {"grad_norm/mlp_in": 0.0, "grad_norm/head": 0.0}


def test_a_group_without_gradients_is_absent_not_zero(model):
    signal = Gradient(subject_of(model))
    model["lm_head"].weight.grad = torch.ones(9, 4)
    signal.before_update(1)
    assert plain(signal.measure(1)) == {"grad_norm/head": 6.0}


def test_the_learning_rate_is_the_one_applied_not_the_next(model):
    optimizer = torch.optim.SGD(
        [
            {"params": model["up_proj"].parameters(), "name": "body"},
            {"params": model["lm_head"].parameters(), "lr": 0.5},
        ],
        lr=0.1,
    )
    signal = LearningRate(subject_of(model, optimizer))
    signal.before_update(1)
    optimizer.param_groups[0]["lr"] = 0.2
    assert plain(signal.measure(1)) == {"lr/body": 0.1, "lr/group1": 0.5}
    assert [spec.key for spec in signal.specs()] == ["lr/body", "lr/group1"]


def test_a_learning_rate_that_is_a_tensor_is_copied(model):
    rate = torch.tensor(0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    signal = LearningRate(subject_of(model, optimizer))
    signal.before_update(1)
    rate.fill_(0.9)
    assert plain(signal.measure(1)) == {"lr/group0": pytest.approx(0.1)}


def test_groups_of_two_optimizers_do_not_mix(model):
    first = torch.optim.SGD(model["up_proj"].parameters(), lr=0.1)
    second = torch.optim.SGD(model["lm_head"].parameters(), lr=0.2)
    signal = LearningRate(subject_of(model, first, second))
    assert plain(signal.measure(1)) == {
        "lr/optimizer0.group0": 0.1,
        "lr/optimizer1.group0": 0.2,
    }


def test_nothing_to_measure_is_said(model):
    with pytest.raises(AsleepError):
        LearningRate(subject_of(model))
    with pytest.raises(AsleepError):
        Weights(Subject(None, [], []))


def test_the_first_three_of_the_broken_gradients_are_named_and_an_empty_one_adds_nothing():
    parts = [nn.Parameter(torch.ones(2)) for _ in range(5)]
    model = nn.ParameterDict({"empty": nn.Parameter(torch.empty(0))})
    model.update({f"p{place}": part for place, part in enumerate(parts)})
    signal = Gradient(subject_of(model))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for place in (0, 2, 3, 4):
        parts[place].grad[0] = float("inf")
    parts[1].grad[:] = 3.0
    signal.before_update(1)
    signal.measure(1)
    assert signal.blame(1) == ["p0", "p2", "p3"]
    for place in (0, 2, 3, 4):
        parts[place].grad.zero_()
    signal.before_update(2)
    (norm,) = signal.measure(2).values()
    assert float(norm) == pytest.approx(18**0.5)
    assert signal.blame(2) == []
