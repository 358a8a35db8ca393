"""Probe statistics against values computed by hand or by a slower, plainer way."""

import math

import pytest

torch = pytest.importorskip("torch")

from trainer_hooks.probe import calibration, expected_calibration_error  # noqa: E402

pytestmark = pytest.mark.torch


def values(*args, **options):
    return {name: float(value) for name, value in calibration(*args, **options).items()}


def random_case(tokens=700, vocab=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(tokens, vocab, generator=generator) + 1
    return logits, torch.randint(vocab, (tokens,), generator=generator)


def test_masked_targets_do_not_count():
    logits = torch.zeros(1, 4, 20)
    logits[0, 0, 3] = 5.0  # right
    logits[0, 1, 3] = 5.0  # second best is the true one
    logits[0, 1, 4] = 4.0
    targets = torch.tensor([[3, 4, -100, -100]])
    found = values(logits, targets)
    assert found["top1"] == 0.5
    assert found["top10"] == 1.0
    assert found["median_rank"] in (1.0, 2.0)


def test_all_masked_is_absent_not_nan():
    assert calibration(torch.zeros(2, 3, 5), torch.full((2, 3), -100)) == {}


def test_padding_of_the_vocabulary_is_left_out():
    logits = torch.zeros(2, 50_304)
    logits[:, 50_257:] = 9.0
    found = values(logits, torch.tensor([5, 50_256]), vocab=50_257)
    assert found["loss"] == pytest.approx(10.8249, abs=1e-4)
    assert found["entropy"] == pytest.approx(10.8249, abs=1e-4)
    assert found["top1"] < 1e-4


def test_padding_appended_changes_nothing():
    logits, targets = random_case()
    plain = values(logits, targets)
    padded = values(torch.cat([logits, torch.full((700, 14), 7.0)], 1), targets, vocab=50)
    for name, value in plain.items():
        assert padded[name] == pytest.approx(value, abs=1e-6), name


def test_against_distributions_and_sorting():
    logits, targets = random_case()
    found = values(logits, targets)
    wide = logits.double()
    told = torch.distributions.Categorical(logits=wide)
    ranks = (wide.argsort(-1, descending=True) == targets[:, None]).nonzero()[:, 1] + 1
    confidence = told.probs.amax(-1)
    expected = {
        "loss": torch.nn.functional.cross_entropy(wide, targets),
        "top1": (ranks == 1).double().mean(),
        "top10": (ranks <= 10).double().mean(),
        "median_rank": ranks.median().double(),
        "entropy": told.entropy().mean(),
        "confidence": confidence.mean(),
        "logit_scale": (wide - wide.mean(-1, keepdim=True)).square().mean().sqrt(),
        "logit_shift": wide.mean(),
        "logsumexp": wide.logsumexp(-1).mean(),
        "logit_max": wide.max(),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value.item(), rel=1e-5), name
    assert found["entropy_minus_nll"] == pytest.approx(found["entropy"] - found["loss"], abs=1e-5)


def test_a_shift_of_all_logits_moves_the_shift_and_nothing_else_softmax_sees():
    logits, targets = random_case()
    plain, moved = values(logits, targets), values(logits + 10, targets)
    assert moved["logit_shift"] == pytest.approx(plain["logit_shift"] + 10, rel=1e-5)
    for name in ("loss", "entropy", "confidence", "logit_scale", "ece"):
        assert moved[name] == pytest.approx(plain[name], rel=1e-4), name


def test_a_calibrated_model_has_no_gap_and_a_surer_one_has():
    logits, _ = random_case(tokens=20_000)
    generator = torch.Generator().manual_seed(3)
    targets = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    calibrated, surer = values(logits, targets), values(logits * 2, targets)
    assert abs(calibrated["entropy_minus_nll"]) < 0.02
    assert calibrated["ece"] < 0.02
    assert surer["entropy_minus_nll"] < -0.3
    assert surer["ece"] > 0.1


def test_error_of_two_bins_by_hand():
    confidence = torch.tensor([0.95, 0.95, 0.35, 0.35])
    right = torch.tensor([1.0, 0.0, 0.0, 0.0])
    # bin of 0.95: |0.95 - 0.5| * 2/4, bin of 0.35: |0.35 - 0| * 2/4
    assert expected_calibration_error(confidence, right).item() == pytest.approx(0.4)


def test_ties_are_not_called_right():
    found = values(torch.zeros(3, 100), torch.tensor([0, 50, 99]))
    assert found["top1"] == pytest.approx(0.01)
    assert found["top10"] == pytest.approx(0.10)
    assert found["median_rank"] == pytest.approx(50.5)


def test_a_broken_model_is_nan_not_right():
    found = values(torch.full((2, 5), math.nan), torch.tensor([0, 1]))
    assert all(math.isnan(value) for value in found.values()), found


def test_half_precision_logits_are_widened():
    logits, targets = random_case()
    found = values(logits.bfloat16(), targets)
    assert found["loss"] == pytest.approx(
        torch.nn.functional.cross_entropy(logits.bfloat16().float(), targets).item(), rel=1e-5
    )


def test_a_target_outside_the_vocabulary_is_named():
    with pytest.raises(ValueError, match="vocabulary of 5"):
        calibration(torch.zeros(1, 8), torch.tensor([6]), vocab=5)
