"""The zoo's corpus, loader and faults: what is spoilt, and when."""

import math

import pytest

torch = pytest.importorskip("torch")

from trainer_hooks.zoo.corpus import END_OF_TEXT, standard_library  # noqa: E402
from trainer_hooks.zoo.faults import FAULTS, fault_class  # noqa: E402
from trainer_hooks.zoo.loader import Loader, held_out_rows  # noqa: E402
from trainer_hooks.zoo.model import CONTEXT, TinyGPT  # noqa: E402
from trainer_hooks.zoo.run import cosine_lr, enough_steps, run_zoo, truth  # noqa: E402

pytestmark = pytest.mark.torch


def rows_of(batch):
    return {tuple(row) for row in batch[0].tolist()}


def test_no_document_is_in_both_parts():
    corpus = standard_library()
    assert not set(corpus.train) & set(corpus.held_out)
    assert len(corpus.held_out) >= 64
    assert all(END_OF_TEXT not in document for document in corpus.train)


def test_a_healthy_run_fits_into_one_epoch():
    total = sum(len(document) for document in standard_library().train)
    assert total > 900 * 16 * CONTEXT


def test_the_model_has_the_size_it_says():
    assert sum(p.numel() for p in TinyGPT().parameters()) == 387_744


def test_a_seed_is_an_order_of_the_same_text():
    text = [bytes(range(1, 256)) * 40]
    first, again, other = Loader(text, 0).draw(), Loader(text, 0).draw(), Loader(text, 1).draw()
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(first[0][:, 1:], first[1][:, :-1])


def test_held_out_rows_are_one_window_of_each_document():
    documents = [bytes([value]) * 200 for value in range(1, 6)]
    inputs, targets, _ = held_out_rows(documents, 10)
    assert inputs[:, 0].tolist() == [1, 2, 3, 4, 5] * 2
    assert targets.shape == (10, CONTEXT)


def test_a_stale_loader_serves_its_last_sixteen_batches_from_the_onset_to_the_end(monkeypatch):
    monkeypatch.setattr("trainer_hooks.zoo.faults.stale_loader.STALL_S", 0.0)
    fault = fault_class("stale_loader")(onset=31, end=70)
    loader = Loader(standard_library().train, 0)
    batches = [fault.batch(step, loader) for step in range(1, 81)]
    for step in range(31, 71):
        assert batches[step - 1] is batches[14 + (step - 31) % 16]
    fresh = [rows_of(b) for b in batches[:30] + batches[70:]]
    assert len(set.union(*fresh)) >= 0.97 * 16 * 40


def test_over_training_goes_round_in_64_kb():
    fault = fault_class("over_training")(onset=11, end=100)
    loader = Loader(standard_library().train, 0)
    batches = [rows_of(fault.batch(step, loader)) for step in range(1, 11 + 3 * 64)]
    before, first, second = set().union(*batches[:10]), batches[10:74], batches[74:138]
    assert len(set().union(*first)) > 900
    assert set().union(*second) <= set().union(*first)
    assert len(before & set().union(*first)) < 20


def test_the_other_faults_touch_their_own_steps_only():
    loss = torch.tensor(2.0)
    assert fault_class("zero_lr")(5, 9).settings(5, 1e-3, 0.1) == (0.0, 0.1)
    assert fault_class("zero_lr")(5, 9).settings(10, 1e-3, 0.1) == (1e-3, 0.1)
    assert fault_class("no_decay")(5, 9).settings(5, 1e-3, 0.1)[1] == 0.0
    assert fault_class("nan_loss")(5, 5).loss(5, loss).item() == math.inf
    assert fault_class("nan_loss")(5, 5).loss(6, loss).item() == 2.0


@pytest.mark.parametrize("name", list(FAULTS))
def test_every_fault_has_its_truth(name):
    told = truth(name)
    if fault_class(name).is_control:
        assert (told.onset, told.end) == (None, None)
    else:
        assert 1 <= told.onset <= told.end <= told.steps <= 2500
        assert truth(name, onset=500, steps=600).end in range(500, 601)


def test_impossible_stories_are_refused():
    with pytest.raises(ValueError, match="no fault is called"):
        run_zoo("gremlins")
    with pytest.raises(ValueError, match="at least one step"):
        run_zoo(steps=0)
    with pytest.raises(ValueError, match="outside the run"):
        run_zoo("zero_lr", onset=11, steps=10)


def test_a_late_fault_has_time_to_show():
    assert enough_steps(None) == 800
    onset, steps = 700, enough_steps(700)
    assert truth("stale_loader", onset=onset, steps=steps).end < steps


def test_the_learning_rate_warms_up_and_comes_down():
    assert cosine_lr(50, 800) == pytest.approx(cosine_lr(100, 800) / 2)
    assert cosine_lr(800, 800) == pytest.approx(cosine_lr(100, 800) / 10)


def test_the_same_seed_gives_the_same_losses_and_threads_are_put_back():
    threads = torch.get_num_threads()
    first, again, other = (run_zoo(seed=seed, steps=4) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert torch.get_num_threads() == threads


def test_an_infinite_loss_spreads():
    losses = run_zoo("nan_loss", onset=3, steps=5)
    assert math.isfinite(losses[1])
    assert losses[2] == math.inf
    assert all(math.isnan(loss) for loss in losses[3:])
