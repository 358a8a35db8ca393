"""Figures of what is fed, each with values worked out by hand."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from trainer_hooks.feed.meter import FeedMeter, UnigramReference, reference_steps  # noqa: E402
from trainer_hooks.feed.sample import Sample, chosen_rows, copy_rows  # noqa: E402
from trainer_hooks.feed.settings import Feed  # noqa: E402
from trainer_hooks.post.beside import Allowance, Beside, ClipMeter, Plan  # noqa: E402
from trainer_hooks.post.frames import Row  # noqa: E402

pytestmark = pytest.mark.torch


def sample(rows, sources=()):
    return Sample(torch.tensor(rows, dtype=torch.int32), tuple(sources))


def test_a_template_is_found_wherever_it_stands_and_only_whole():
    meter = FeedMeter(Feed(templates=[[7, 8], [9]]))
    rows = [[7, 8, 1, 1], [1, 1, 7, 8], [8, 7, 7, 1], [1, 9, 1, 1], [1, 1, 1, 7]]
    assert meter.measure([sample(rows)])["template_share"] == pytest.approx(3 / 5)


def test_a_template_longer_than_the_row_is_not_found():
    assert FeedMeter(Feed(templates=[[1, 1, 1]])).measure([sample([[1, 1]])]) == {
        "template_share": 0.0
    }


def test_strings_are_templates_once_something_encodes_them():
    assert Feed().patterns() == []
    encoded = Feed(encode=lambda text: list(text.encode())).patterns()
    assert list(b"[INST]") in encoded


def test_the_divergence_is_that_of_the_smoothed_counts_and_the_reference_never_moves():
    reference = UnigramReference(steps=2)
    assert reference.divergence(torch.tensor([1, 1, 2])) is None
    assert reference.divergence(torch.tensor([1, 2, 2])) is None
    # Reference: 3 of token 1, 3 of token 2; now: 4 of token 1; half a count more for each.
    p, q = (4.5 / 5, 0.5 / 5), (3.5 / 7, 3.5 / 7)
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    found = [reference.divergence(torch.tensor([1, 1, 1, 1])) for _ in range(5)]
    assert found == [pytest.approx(expected)] * 5


def test_a_token_the_reference_never_saw_costs_much_and_not_infinitely_much():
    reference = UnigramReference(steps=1)
    reference.divergence(torch.full((1000,), 5))
    assert 3 < reference.divergence(torch.full((1000,), 6)) < 10


@pytest.mark.parametrize(
    ("planned", "steps"), [(None, 100), (800, 20), (20_000, 200), (10**7, 500)]
)
def test_the_reference_is_a_hundredth_of_the_plan_within_bounds(planned, steps):
    assert reference_steps(planned) == steps


def test_end_and_padding_shares_and_the_documents_length():
    meter = FeedMeter(Feed(eos=0, pad=9))
    first = meter.measure([sample([[1, 1, 0, 1], [1, 9, 9, 9]])])
    assert first["pad_share"] == pytest.approx(3 / 8)
    assert first["eos_share"] == pytest.approx(1 / 5)
    assert "doc_len" not in first, "one end tells nothing"
    second = meter.measure([sample([[0, 0, 0, 1]] * 10), sample([[0, 1, 1, 1]])])
    assert second["doc_len"] == pytest.approx((5 + 44) / (1 + 31))


def test_where_padding_is_the_end_token_ends_are_still_counted():
    found = FeedMeter(Feed(eos=0, pad=0)).measure([sample([[1, 1, 0, 0]])])
    assert (found["pad_share"], found["eos_share"]) == (0.5, 0.5)


def test_without_an_end_the_documents_length_is_not_told():
    assert "doc_len" not in FeedMeter(Feed(eos=0)).measure([sample([[1, 1, 1]])])


def test_a_source_that_stops_coming_has_share_zero():
    meter = FeedMeter(Feed())
    rows = [[1, 2]] * 4
    first = meter.measure([sample(rows, ["web", "web", "code", "web"])])
    assert (first["source_share@web"], first["source_share@code"]) == (0.75, 0.25)
    assert meter.measure([sample(rows, ["web"] * 4)])["source_share@code"] == 0.0


def test_micro_batches_of_a_step_count_together():
    meter = FeedMeter(Feed(templates=[[7]]))
    found = meter.measure([sample([[7, 1]]), sample([[1, 1], [1, 1], [1, 1]])])
    assert found["template_share"] == pytest.approx(1 / 4)


def test_rows_are_spread_over_the_batch_and_bounded():
    tokens_BT = torch.arange(40).reshape(10, 4)
    assert chosen_rows(tokens_BT, 20)[:, 0].tolist() == [0, 8, 16, 24, 32]
    assert chosen_rows(tokens_BT, 3).tolist() == [[0, 1, 2]]
    assert chosen_rows(tokens_BT.float(), 20) is None
    assert chosen_rows("text", 20) is None


def test_a_copied_sample_does_not_change_with_the_loops_batch():
    tokens_BT = torch.zeros(2, 3, dtype=torch.int32)
    kept = copy_rows(chosen_rows(tokens_BT, 100))
    tokens_BT.fill_(5)
    assert kept.sum() == 0


def test_the_clip_share_is_that_of_the_last_hundred_steps():
    meter = ClipMeter(1.0)
    found = [meter.measure({"grad_norm/total": norm}) for norm in [2.0] * 50 + [0.5] * 100]
    assert found[49] == {"clip_share": 1.0}
    assert found[99] == {"clip_share": 0.5}
    assert found[149] == {"clip_share": 0.0}
    assert meter.measure({"grad_norm/total": math.nan})["clip_share"] == pytest.approx(0.01)
    assert meter.measure({}) == {}


def test_looking_takes_no_more_than_its_share_of_the_time():
    clock, spent = [0.0], [0.0]

    def work():
        spent[0] += 0.001
        return {}

    allowance = Allowance(lambda: clock[0], lambda: spent[0])
    for _ in range(100_000):  # a step each millisecond, each of them worth a millisecond of work
        clock[0] += 0.001
        if allowance.is_left():
            allowance.spend(work)
    assert 2.0 <= spent[0] <= 2.3


def test_a_resumed_run_is_compared_with_its_own_beginning(tmp_path: Path):
    def last(beside, token):
        rows = [Row("a", n, 0.0, {}, True, [sample([[token] * 8])]) for n in range(101)]
        beside.add_to(rows, pytest.fail)
        return rows[-1].cells["batch_unigram_kl"]

    first = Beside(Plan(Feed(), tmp_path))
    first.remember_in(tmp_path / "run", continues=False)
    assert last(first, 5) == pytest.approx(0.0, abs=1e-9)
    again = Beside(Plan(Feed(), tmp_path))
    again.remember_in(tmp_path / "run", continues=True)
    assert last(again, 6) > 2
    fresh = Beside(Plan(Feed(), tmp_path))
    fresh.remember_in(tmp_path / "run", continues=False)
    assert last(fresh, 6) == pytest.approx(0.0, abs=1e-9)
    (tmp_path / "run" / "fed.json").write_text("[half a fi")
    spoilt = Beside(Plan(Feed(), tmp_path))
    spoilt.remember_in(tmp_path / "run", continues=True)
    assert last(spoilt, 6) == pytest.approx(0.0, abs=1e-9)


def test_a_part_that_fails_three_times_is_left_out_and_the_others_go_on(tmp_path: Path):
    beside = Beside(Plan(Feed(templates=[[1]]), tmp_path, clip_norm=1.0))
    errors = []
    for step in range(5):
        cells = {"grad_norm/total": 2.0}
        row = Row("a", step, 0.0, cells, True, ["no sample"])
        beside.add_to([row], lambda: errors.append(1))
        assert cells["clip_share"] == 1.0
    assert len(errors) == 3


def test_values_made_beside_are_counted_and_nothing_given_is_replaced(tmp_path: Path):
    beside = Beside(Plan(Feed(), tmp_path, clip_norm=1.0))
    cells = {"grad_norm/total": 2.0, "clip_share": 0.25}
    added, sources = beside.add_to(
        [Row("a", 1, 0.0, cells, True, [sample([[1]], ["web"])])], pytest.fail
    )
    assert cells["clip_share"] == 0.25
    assert added == len(cells) - 2
    assert sources == ["web"]
    late = Row("a", 1, 0.0, {"loss/heldout": 2.0}, False)
    assert beside.add_to([late], pytest.fail) == (0, [])
