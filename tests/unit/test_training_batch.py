"""Accuracy and calibration of the batch that is trained on: masked, padded, spread, and on time."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.fixtures.stub_server import StubServer  # noqa: E402
from tests.invisible.test_nothing_waits import Watching  # noqa: E402
from trainer_hooks import watch  # noqa: E402
from trainer_hooks.probe import calibration  # noqa: E402
from trainer_hooks.signals import training_batch as module  # noqa: E402
from trainer_hooks.signals.training_batch import specs, training_batch  # noqa: E402

pytestmark = pytest.mark.torch
VOCAB = 20


def batch(rows=4, length=16):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, length, VOCAB, generator=generator) * 3
    targets = torch.randint(VOCAB, (rows, length), generator=generator)
    targets[:, ::3] = -100
    return logits, targets


def test_it_is_what_the_probe_says_of_the_same_tokens():
    logits, targets = batch()
    found = {key: v.item() for key, v in training_batch(logits, targets).items()}
    expected = {f"{name}/train": v.item() for name, v in calibration(logits, targets).items()}
    assert found.pop("judged_tokens/train") == int((targets != -100).sum())
    del expected["loss/train"]  # that is the loop's to say
    assert found == pytest.approx(expected, rel=1e-5)
    assert {spec.key for spec in specs()} == {*found, "judged_tokens/train"}


def test_masked_positions_padding_and_padded_columns_change_nothing():
    logits, targets = batch()
    more = torch.cat([logits, torch.full((4, 100, VOCAB), math.nan)], 1)
    padded = torch.cat([targets, torch.full((4, 100), -100)], 1)
    wide = torch.cat([more, torch.full((*more.shape[:2], 5), 1e4)], -1)
    plain, found = training_batch(logits, targets), training_batch(wide, padded, vocab=VOCAB)
    assert {k: v.item() for k, v in found.items()} == pytest.approx(
        {k: v.item() for k, v in plain.items()}, rel=1e-5
    )


def test_two_tokens_by_hand():
    logits = torch.zeros(4, 20)
    logits[2, 5] = 9.0
    logits[3, 8:17] = torch.arange(9, 0, -1).float()
    logits[3, 7] = 0.5
    found = training_batch(logits, torch.tensor([-100, -100, 5, 7]))
    assert found["judged_tokens/train"].item() == 2
    assert (found["top1/train"].item(), found["top10/train"].item()) == (0.5, 1.0)


def test_a_large_batch_is_looked_at_in_evenly_spread_tokens(monkeypatch):
    monkeypatch.setattr(module, "MAX_TOKENS", 10)
    logits, targets = batch()
    targets[:] = 1
    found = training_batch(logits, targets)
    flat = logits.reshape(-1, VOCAB)[::7]
    assert found["judged_tokens/train"].item() == len(flat) == 10
    expected = calibration(flat, torch.ones(10, dtype=torch.long))["entropy"]
    assert found["entropy/train"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_target_beyond_the_vocabulary_is_nan_and_shapes_that_do_not_fit_are_an_error():
    logits, targets = batch()
    targets[0, 1] = VOCAB
    assert training_batch(logits, targets)["entropy/train"].isnan()
    with pytest.raises(ValueError, match="for targets"):
        training_batch(logits, targets[:, :3])


def test_nothing_waits_for_a_device():
    logits, targets = batch()
    with Watching() as watching:
        training_batch(logits.requires_grad_(), targets, vocab=VOCAB)
    assert watching.found == []


def test_it_goes_with_its_step_where_it_is_due_and_is_absent_without_tokens(tmp_path: Path):
    logits, targets = batch()
    with StubServer() as server:
        w = watch(
            server=server.url, spool_dir=tmp_path, every={"train_batch": 4}, overhead_budget=None
        )
        for step in range(1, 13):
            for _ in range(2):  # micro-batches: the first of a due step is looked at
                w.predicted(logits, targets if step != 8 else torch.full_like(targets, -100))
            w.step(loss=1.0)
        w.predicted("no", "tensors")
        w.close()
        got = server.received
    expected = calibration(logits, targets)["entropy"].item()
    assert got.series("entropy/train") == {
        step: pytest.approx(expected, rel=1e-5) for step in (1, 4, 12)
    }
    assert sorted(got.series("top1/train")) == [1, 4, 12]
    assert got.series("judged_tokens/train")[1] == int((targets != -100).sum())
    assert {spec.key for spec in specs()} <= {r["key"] for r in got.records("series")}
    assert w.tally().hook_errors == 0  # the last call was not due, so it was not looked at
