"""Rotation, update size and coverage of one optimizer step."""

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tests.bench.parts.memory import MIB, peak_mib  # noqa: E402
from trainer_hooks.signals import change, update  # noqa: E402
from trainer_hooks.signals.base import UNDEFINED, AsleepError, Subject  # noqa: E402
from trainer_hooks.signals.change import _on_device, measure_change  # noqa: E402
from trainer_hooks.signals.groups import named_parameters  # noqa: E402
from trainer_hooks.signals.update import Update  # noqa: E402

pytestmark = pytest.mark.torch


def subject_of(model, optimizer=None):
    optimizers = [optimizer] if optimizer else []
    return Subject(model, optimizers, named_parameters(model, optimizers))


def one_step(signal, change):
    """What the signal measures when ``change`` is what the optimizer does."""
    signal.before_update(1)
    with torch.no_grad():
        change()
    signal.after_update(1)
    found = {key: float(value) for key, value in signal.measure(1).items()}
    signal.read(found)
    return found


def rotated(size, angle_rad, stretch=1.0):
    """A random float32 vector and the same one turned by an angle (and stretched)."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(size, generator=generator, dtype=torch.float64)
    other = torch.randn(size, generator=generator, dtype=torch.float64)
    other -= first * (first @ other) / (first @ first)
    other *= first.norm() / other.norm()
    turned = stretch * (math.cos(angle_rad) * first + math.sin(angle_rad) * other)
    return first.float(), turned.float()


@pytest.mark.parametrize("angle_rad", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("stretch", [1.0, 1.001, 0.9])
@pytest.mark.parametrize("compare", [measure_change, _on_device])
def test_the_angle_is_right_to_four_digits_where_arccos_in_float32_is_lost(
    angle_rad, stretch, compare
):
    before, after = rotated(1_000_000, angle_rad, stretch)
    wide = before.double(), after.double()
    cosine = (wide[0] @ wide[1]) / (wide[0].norm() * wide[1].norm())
    chord = 2 * ((wide[0] / wide[0].norm() - wide[1] / wide[1].norm()).norm() / 2).asin()
    measured = compare([before.clone()], [after]).angle.item()
    assert measured == pytest.approx(chord.item(), rel=1e-4)
    if angle_rad >= 1e-4:
        assert measured == pytest.approx(torch.arccos(cosine).item(), rel=1e-4)


def test_a_pure_stretch_is_no_rotation():
    before = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    change = measure_change([before.clone()], [before * 2])
    assert change.angle.item() < 1e-3
    assert change.change_norm.item() == pytest.approx(before.norm().item(), rel=1e-5)


def test_opposite_directions_are_pi():
    before = torch.ones(10)
    assert measure_change([before.clone()], [-before]).angle.item() == pytest.approx(math.pi)


def test_both_ways_of_comparing_agree():
    generator = torch.Generator().manual_seed(2)
    after = [torch.randn(300, 500, generator=generator), torch.randn(7, generator=generator)]
    before = [after[0] + 0.01 * torch.randn(300, 500, generator=generator), after[1].clone()]
    first = measure_change([t.clone() for t in before], after)
    second = _on_device([t.clone() for t in before], after)
    for field in ("before_norm", "change_norm", "angle", "changed"):
        assert getattr(first, field).tolist() == pytest.approx(
            getattr(second, field).tolist(), 1e-5
        )


def test_broken_weights_are_nan_and_huge_ones_are_not():
    broken = measure_change([torch.ones(4)], [torch.full((4,), math.nan)])
    assert math.isnan(broken.angle.item())
    huge = measure_change([torch.full((4,), 1e20)], [torch.full((4,), 2e20)])
    assert huge.before_norm.item() == pytest.approx(2e20)
    assert huge.angle.item() < 1e-6


def test_ratio_and_coverage_of_a_known_step():
    model = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    found = one_step(Update(subject_of(model)), lambda: model.weight[0].add_(1.0))
    assert found["update_ratio/other"] == pytest.approx(2 / 4)
    assert found["update_coverage/other"] == pytest.approx(4 / 16)
    assert found["update_ratio/total"] == pytest.approx(2 / 4)
    cosine = (4 * 2 + 12) / (4 * math.sqrt(4 * 4 + 12))
    assert found["effective_lr/other"] == pytest.approx(math.acos(cosine), rel=1e-5)


def test_an_optimizer_that_forgot_a_layer_shows_in_the_coverage():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.1)
    signal = Update(subject_of(model, optimizer))
    model(torch.ones(1, 8)).sum().backward()
    found = one_step(signal, optimizer.step)
    assert found["update_coverage/total"] == pytest.approx(0.5)


def test_frozen_parameters_are_not_expected_to_move():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight.requires_grad_(False)
    found = one_step(Update(subject_of(model)), lambda: model[0].weight.add_(1.0))
    assert found["update_coverage/total"] == pytest.approx(1.0)


def test_bf16_weights_that_swallow_a_small_step_show_in_the_coverage():
    model = nn.Linear(16, 16, bias=False).bfloat16()
    with torch.no_grad():
        model.weight.fill_(1.0)

    def tiny_step():
        model.weight.add_(1e-4)
        model.weight[0].add_(0.1)

    found = one_step(Update(subject_of(model)), tiny_step)
    assert found["update_coverage/other"] == pytest.approx(1 / 16)


def test_zero_initialised_matrices_have_no_angle_and_no_ratio_yet():
    model = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    found = one_step(Update(subject_of(model)), lambda: model.weight.add_(1.0))
    assert found["effective_lr/other"] == 0.0
    assert found["update_ratio/other"] == UNDEFINED
    assert found["update_coverage/other"] == 1.0


def test_gains_have_a_ratio_but_no_rotation():
    model = nn.ModuleDict({"norm": nn.LayerNorm(4)})
    signal = Update(subject_of(model))
    keys = {spec.key for spec in signal.specs()}
    assert keys == {
        f"{n}/{g}" for n in ("update_ratio", "update_coverage") for g in ("norm", "total")
    }


def test_no_trainable_parameter_leaves_the_signal_asleep():
    model = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(AsleepError):
        Update(subject_of(model))


def test_what_does_not_fit_is_measured_in_turn(monkeypatch):
    monkeypatch.setattr(update, "MAX_COPY_BYTES", 4 * 64)
    model = nn.ModuleDict(
        {"lm_head": nn.Linear(8, 8, bias=False), "up_proj": nn.Linear(8, 8, bias=False)}
    )

    def step():
        for parameter in model.parameters():
            parameter.mul_(1.5)

    signal = Update(subject_of(model))
    first, second, third = (one_step(signal, step) for _ in range(3))
    assert {key.split("/")[1] for key in first} == {"head"}
    assert {key.split("/")[1] for key in second} == {"mlp_in"}
    assert first.keys() == third.keys()
    assert second["update_ratio/mlp_in"] == pytest.approx(0.5)


def test_a_tensor_beyond_the_bound_is_measured_on_its_leading_rows(monkeypatch):
    monkeypatch.setattr(update, "MAX_COPY_BYTES", 4 * 64)
    model = nn.Embedding(100, 8)
    signal = Update(subject_of(model))
    signal.before_update(1)
    assert sum(copy.numel() for copy in signal._held) == 64
    with torch.no_grad():
        model.weight.mul_(1.5)
    signal.after_update(1)
    found = signal.measure(1)
    assert float(found["update_ratio/other"]) == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_group_that_does_not_fit_takes_no_more_memory_than_one_that_does(monkeypatch, dtype):
    """Eight matrices of one group and one beyond the bound: 6 MiB as float32, 1 MiB at a time."""
    bound, chunk = 1 << 20, 1 << 14
    monkeypatch.setattr(update, "MAX_COPY_BYTES", bound)
    monkeypatch.setattr(change, "CHUNK", chunk)
    layers = [nn.Linear(256, 400, bias=False, dtype=dtype) for _ in range(8)]
    model = nn.ModuleDict({f"layer{i}_up_proj": layer for i, layer in enumerate(layers)})
    model["lm_head"] = nn.Linear(256, 3000, bias=False, dtype=dtype)
    signal = Update(subject_of(model))
    changed: dict[str, float] = {}
    for step in range(1, 7):
        peak = peak_mib(lambda step=step: signal.before_update(step))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter[::2].mul_(2)
        peak += peak_mib(lambda step=step: signal.after_update(step))
        assert peak * MIB <= bound + 6 * 8 * chunk  # a second look is at chunks in float64
        found = {key: float(value) for key, value in signal.measure(step).items()}
        signal.read(found)
        assert len({key.split("/")[1] for key in found}) == 1, "one portion at a time"
        changed |= found
    assert 0.5 < changed["update_ratio/mlp_in"] <= 1
    assert changed["update_coverage/head"] == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("has_numpy", [True, False])
def test_what_changed_is_counted_with_numpy_and_without(monkeypatch, has_numpy):
    monkeypatch.setattr(change, "_is_shared_with_numpy", lambda: has_numpy)
    monkeypatch.setattr(change, "CHUNK", 64)
    before, after = torch.zeros(1000), torch.zeros(1000)
    after[5:130] = 1e-30
    after[999] = math.nan
    assert measure_change([before], [after]).changed.tolist() == [126]


def test_specs_name_exactly_what_is_measured():
    model = nn.ModuleDict({"tok_emb": nn.Embedding(4, 4), "norm": nn.LayerNorm(4)})
    signal = Update(subject_of(model))

    def step():
        for parameter in model.parameters():
            parameter.add_(0.1)

    assert {spec.key for spec in signal.specs()} == set(one_step(signal, step))


def test_the_most_turned_matrix_is_told_by_name_whenever_it_is_another_one(monkeypatch):
    monkeypatch.setattr(update, "MAX_COPY_BYTES", 2 * 16 * 4)  # two matrices at a time
    model = nn.ModuleDict({f"layer{i}_up_proj": nn.Linear(4, 4, bias=False) for i in range(4)})
    signal = Update(subject_of(model))
    said = []
    for turned in (1, 3, 1, 2, 0, 3):
        signal.before_update(1)
        with torch.no_grad():
            model[f"layer{turned}_up_proj"].weight.copy_(torch.rand(4, 4))
        signal.after_update(1)
        cells = {key: float(value) for key, value in signal.measure(1).items()}
        said += [spec.help.rpartition(": ")[2] for spec in signal.read(cells)]
        assert not [key for key in cells if key.startswith(update.WORST)]
    # Portions take turns: layers 0 and 1, then 2 and 3; a step that moves nothing of one names
    # its first.
    assert said == [f"layer{i}_up_proj.weight" for i in (1, 3, 1, 2, 0, 3)]
    assert signal.skipped(7).keys() == cells.keys()
