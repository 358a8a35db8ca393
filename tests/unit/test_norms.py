"""Norms of tensors whose squares do not fit, and of tensors that are not plain."""

import math

import pytest

torch = pytest.importorskip("torch")

from trainer_hooks.signals.norms import joint, tensor_norms  # noqa: E402

pytestmark = pytest.mark.torch


def norm(tensor):
    return tensor_norms([tensor])[0].item()


def test_half_precision_is_summed_wide():
    assert norm(torch.full((1_000_000,), 100.0, dtype=torch.float16)) == pytest.approx(1e5, 1e-3)


def test_bfloat16_is_summed_wide():
    assert norm(torch.full((1_000_000,), 1.0, dtype=torch.bfloat16)) == pytest.approx(1e3, 1e-3)


def test_squares_beyond_float32_do_not_overflow():
    assert norm(torch.full((4,), 1e20)) == pytest.approx(2e20, 1e-6)


def test_real_non_finite_values_stay_what_they_are():
    assert norm(torch.tensor([1.0, math.inf])) == math.inf
    assert math.isnan(norm(torch.tensor([1.0, math.nan])))


def test_complex_numbers_count_with_their_absolute_value():
    assert norm(torch.tensor([3 + 4j, 0])) == pytest.approx(5.0)


def test_sparse_gradients_of_an_embedding_add_up_before_they_are_squared():
    table = torch.nn.Embedding(10, 1, sparse=True)
    table(torch.tensor([3, 3, 3, 7])).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.is_sparse
    assert norm(table.weight.grad) == pytest.approx(3.16228, 1e-5)


def test_mixed_kinds_keep_their_places():
    found = tensor_norms(
        [torch.ones(4), torch.ones(9, dtype=torch.float16), torch.ones(16, dtype=torch.float64)]
    )
    assert found.tolist() == pytest.approx([2.0, 3.0, 4.0])
    assert joint(found).item() == pytest.approx(math.sqrt(29))
