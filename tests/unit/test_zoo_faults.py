"""Each fault of the zoo spoils what it says, on the steps it says, and nothing else."""

import copy
import random

import pytest

torch = pytest.importorskip("torch")

from trainer_hooks.zoo.corpus import Corpus, standard_library  # noqa: E402
from trainer_hooks.zoo.faults import FAULTS, fault_class  # noqa: E402
from trainer_hooks.zoo.faults.template_leak import TEMPLATE  # noqa: E402
from trainer_hooks.zoo.faults.tuning import LoraLinear  # noqa: E402
from trainer_hooks.zoo.loader import BATCH, MASKED, Loader  # noqa: E402
from trainer_hooks.zoo.model import CONTEXT, TinyGPT  # noqa: E402
from trainer_hooks.zoo.rates import PEAK_LR, cosine_lr, wsd_lr  # noqa: E402
from trainer_hooks.zoo.run import cross_entropy, run_zoo, train, truth  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def corpus():
    """A small one: some code of this Python."""
    whole = standard_library()
    return Corpus(whole.train[:60], whole.held_out[:60])


def batches(name, corpus, steps, onset, end):
    fault = fault_class(name)(onset, end)
    loader = fault.loader(corpus, 0)
    return fault, [fault.batch(step, loader) for step in range(1, steps + 1)]


def stepped(fault, steps, model=None):
    """Weights after each of some steps of the real loop, without a watch."""
    told = truth("healthy", steps=steps)
    kept = []
    inner = fault.before_update

    def keep(step, model):
        kept.append(copy.deepcopy(model.state_dict()))
        inner(step, model)

    fault.before_update = keep
    losses = train(fault, told, None, None)
    return losses, kept


def test_bad_batches_are_noise_on_their_steps_only(corpus):
    _, drawn = batches("bad_batch", corpus, 6, 3, 4)
    _, sound = batches("healthy", corpus, 6, 9, 9)
    same = [torch.equal(a.inputs_BT, b.inputs_BT) for a, b in zip(drawn, sound, strict=True)]
    assert same == [True, True, False, False, True, True]
    noise = drawn[2].inputs_BT
    assert len(noise.unique()) > 240
    assert torch.equal(noise[:, 1:], drawn[2].targets_BT[:, :-1])


def test_a_slow_loader_waits_every_25th_step(corpus, monkeypatch):
    waits = []
    monkeypatch.setattr("trainer_hooks.zoo.faults.slow_loader.time.sleep", waits.append)
    batches("slow_loader", corpus, 100, 11, 80)
    assert waits == [0.5] * 3


def test_a_frozen_layer_does_not_move_and_the_others_do():
    _, kept = stepped(fault_class("frozen_layer")(3, 5), 6)
    for name in kept[0]:
        still = [torch.equal(a[name], b[name]) for a, b in zip(kept[2:], kept[3:], strict=False)]
        expected = [True, True, True] if name.startswith("blocks.1.") else [False] * 3
        if kept[0][name].ndim == 2:
            assert still == expected, name


def test_weights_are_rounded_to_bfloat16_after_their_step():
    _, kept = stepped(fault_class("bf16_weights")(3, 9), 5)
    weight = [state["blocks.0.up_proj.weight"] for state in kept]
    rounded = [torch.equal(w, w.bfloat16().float()) for w in weight]
    assert rounded == [False, False, False, True, True]


def test_a_resume_brings_back_older_weights_and_an_empty_optimizer(monkeypatch):
    monkeypatch.setattr("trainer_hooks.zoo.faults.resume_noopt.OLDER_STEPS", 4)
    fault = fault_class("resume_noopt")(7, 9)
    model = TinyGPT()
    optimizers = fault.optimizers(model)
    optimizers[0].state["x"] = 1
    resumed = []
    for step in range(1, 10):
        resumed.append(fault.resume(step, model, optimizers))
        if step == 7:
            assert float(model.lm_head.weight.detach().mean()) == pytest.approx(2.0)
            assert not optimizers[0].state
        with torch.no_grad():
            model.lm_head.weight.fill_(float(step))
    assert resumed == [step == 7 for step in range(1, 10)]


@pytest.mark.parametrize("name", ["lr_times_ten", "counted_twice"])
def test_these_begin_with_a_new_attempt(name):
    fault = fault_class(name)(5, 9)
    assert [s for s in range(1, 10) if fault.resume(s, TinyGPT(), [])] == [5]


def test_the_rate_is_ten_times_the_schedules():
    fault = fault_class("lr_times_ten")(5, 9)
    assert fault.settings(4, 1e-3, 0.1) == (1e-3, 0.1)
    assert fault.settings(5, 1e-3, 0.1) == (1e-2, 0.1)


def test_a_loss_counted_twice():
    fault = fault_class("counted_twice")(5, 9)
    assert [float(fault.loss(step, torch.tensor(2.0))) for step in (4, 5, 9, 10)] == [2, 4, 4, 2]


def test_templates_stand_in_three_rows_of_ten_of_their_steps(corpus):
    _, drawn = batches("template_leak", corpus, 6, 3, 5)
    marks = [
        sum(bytes(row).startswith(TEMPLATE) for row in batch.inputs_BT.tolist()) for batch in drawn
    ]
    assert marks == [0, 0, 5, 5, 5, 0]
    leaked = drawn[2]
    assert torch.equal(leaked.inputs_BT[0, 1:], leaked.targets_BT[0, :-1])


def test_labels_that_are_not_shifted(corpus):
    _, drawn = batches("label_shift", corpus, 3, 2, 3)
    assert [torch.equal(b.inputs_BT, b.targets_BT) for b in drawn] == [False, True, True]


def test_dropout_is_in_the_model_and_in_the_evaluation_from_the_onset():
    fault = fault_class("dropout_in_eval")(5, 9)
    assert fault.model().blocks[0].dropout > 0
    assert [fault.evaluates_in_training_mode(step) for step in (4, 5)] == [False, True]
    ids = torch.ones(2, 8, dtype=torch.long)
    model = fault.model()
    assert not torch.equal(model(ids), model(ids))
    assert torch.equal(model.eval()(ids), model(ids))


def test_a_starved_source_is_left_out_without_a_word(corpus):
    fault, drawn = batches("starved_source", corpus, 8, 4, 6)
    counts = [batch.sources.count("upper") for batch in drawn]
    assert counts == [4, 4, 4, 0, 0, 0, 4, 4]
    assert all(len(batch.sources) == len(batch.inputs_BT) == BATCH for batch in drawn)
    assert fault.announcement(4) is None


def test_a_planned_change_of_the_mix_is_announced(corpus):
    fault, drawn = batches("control_mix_change", corpus, 6, 4, 9)
    assert [b.sources.count("upper") for b in drawn] == [4, 4, 4, 8, 8, 8]
    assert [step for step in range(1, 10) if fault.announcement(step)] == [4]


def test_the_second_source_is_in_the_other_case_and_in_the_probe(corpus):
    fault = fault_class("starved_source")(5, 9)
    probe = fault.held_out(corpus, 64, 0)
    assert probe.sources.count("upper") == 16
    upper = bytes(probe.inputs_BT[-16:].flatten().tolist())
    lower = bytes(probe.inputs_BT[:16].flatten().tolist())
    assert sum(map(str.isupper, upper.decode("latin1"))) > sum(
        map(str.islower, upper.decode("latin1"))
    )
    assert sum(map(str.islower, lower.decode("latin1"))) > sum(
        map(str.isupper, lower.decode("latin1"))
    )


def test_the_labels_of_one_source_go_bad_bit_by_bit(corpus):
    _, drawn = batches("source_regression", corpus, 200, 11, 400)
    wrong = [(b.inputs_BT[:, 1:] != b.targets_BT[:, :-1]).float() for b in drawn]
    assert all(float(w[:-2].sum()) == 0 for w in wrong)
    assert float(wrong[9].sum()) == 0
    late = torch.stack([w[-2:].mean() for w in wrong[180:]]).mean()
    early = torch.stack([w[-2:].mean() for w in wrong[10:40]]).mean()
    assert 0.35 < late < 0.43
    assert early < 0.1


def test_three_of_four_updates_are_thrown_away_after_clipping():
    fault = fault_class("slow_progress")(4, 9)
    _, kept = stepped(fault, 8)
    weight = [state["blocks.0.up_proj.weight"] for state in kept]
    moved = [not torch.equal(a, b) for a, b in zip(weight, weight[1:], strict=False)]
    assert moved == [True, True, True, True, False, False, False]


def test_documents_become_lines_of_their_own(corpus):
    fault = fault_class("short_answers")(11, 400)
    loader = fault.loader(corpus, 0)
    ends = [(fault.batch(s, loader).inputs_BT == 0).float().mean() for s in range(1, 201)]
    before, after = torch.stack(ends[:10]).mean(), torch.stack(ends[-20:]).mean()
    assert after > 5 * before
    assert 1 / 25 < after < 1 / 8
    prompts = fault.prompts(corpus)
    assert len(prompts.prompts) == 33


def test_a_restart_goes_back_to_the_peak():
    fault = fault_class("control_lr_restart")(401, 800)
    rates = [fault.rate(step, 800) for step in (400, 401, 800)]
    assert rates == [pytest.approx(r, rel=0.02) for r in (PEAK_LR / 10, PEAK_LR, PEAK_LR / 10)]


def test_a_stable_rate_decays_in_the_last_fifth():
    rates = [wsd_lr(step, 1000) for step in (50, 100, 500, 800, 900, 1000)]
    assert [rate / PEAK_LR for rate in rates] == pytest.approx([0.5, 1, 1, 1, 0.55, 0.1])


def test_batches_grow_in_steps(corpus):
    _, drawn = batches("control_batch_ramp", corpus, 30, 10, 30)
    assert [len(drawn[step - 1].inputs_BT) for step in (9, 10, 19, 20)] == [4, 8, 8, 16]


def test_fine_tuning_counts_only_what_follows_the_template(corpus):
    fault, drawn = batches("control_sft", corpus, 2, 1, 9)
    assert fault.kind == "sft"
    for batch in [*drawn, fault.held_out(corpus, 8, 0)]:
        assert (batch.targets_BT[:, :32] == MASKED).all()
        assert (batch.targets_BT[:, 32:] != MASKED).all()
    logits = torch.zeros(*drawn[0].targets_BT.shape, 256)
    assert float(cross_entropy(logits, drawn[0].targets_BT)) == pytest.approx(5.545, abs=1e-3)


def test_adapters_alone_learn_and_change_nothing_at_first():
    fault = fault_class("control_lora")(1, 9)
    torch.manual_seed(0)
    model = fault.model()
    ids = torch.randint(1, 256, (2, CONTEXT))
    before = model(ids)
    (optimizer,) = fault.optimizers(model)
    assert torch.equal(model(ids), before)
    learning = {n for n, p in model.named_parameters() if p.requires_grad}
    assert {name.rpartition(".")[2] for name in learning} == {"lora_A", "lora_B"}
    assert len(optimizer.param_groups[0]["params"]) == len(learning) == 3 * 4 * 2
    assert isinstance(model.blocks[0].attn.qkv_proj, LoraLinear)


def test_a_hyperball_optimizer_keeps_every_matrix_at_its_norm():
    fault = fault_class("control_muon_h")(1, 9)
    torch.manual_seed(0)
    model = fault.model()
    before = {n: float(p.detach().norm()) for n, p in model.named_parameters()}
    was = copy.deepcopy(model.state_dict())
    muon, adam = fault.optimizers(model)
    for _ in range(3):
        model(torch.randint(1, 256, (2, 8))).square().mean().backward()
        muon.step()
        adam.step()
    for name, parameter in model.named_parameters():
        if name.startswith("blocks") and parameter.ndim == 2:
            assert float(parameter.detach().norm()) == pytest.approx(before[name], rel=1e-5)
            assert not torch.equal(parameter, was[name])


@pytest.mark.parametrize(
    "name", [n for n in FAULTS if fault_class(n).training.endswith("run:train")]
)
def test_every_story_trains_and_is_the_same_again(name, monkeypatch):
    monkeypatch.setattr("trainer_hooks.zoo.faults.tuning.EARLIER_STEPS", 2)
    onset = 2 if fault_class(name).length != 1 else 3
    random.seed(0)
    first, again = (run_zoo(name, seed=3, onset=onset, steps=3) for _ in range(2))
    assert [x.hex() for x in first] == [x.hex() for x in again]
    assert len(first) == 3


def test_two_ranks_draw_from_different_seeds_except_where_that_is_the_fault(monkeypatch, corpus):
    drawn = {}
    for rank in (0, 1):
        monkeypatch.setattr("trainer_hooks.zoo.faults.two_ranks._rank", lambda rank=rank: rank)
        for name in ("control_two_ranks", "same_seed"):
            loader = fault_class(name)(1, 9).loader(corpus, 0)
            drawn[name, rank] = loader.draw().inputs_BT
    assert torch.equal(drawn["same_seed", 0], drawn["same_seed", 1])
    assert not torch.equal(drawn["control_two_ranks", 0], drawn["control_two_ranks", 1])


def test_one_tensor_is_left_out_of_the_mean_for_a_while():
    fault = fault_class("rank_desync")(5, 9)
    names = dict(TinyGPT().named_parameters())
    left_out = [fault.left_out(step) for step in (4, 5, 9, 10)]
    assert [len(names.keys() & set(chosen)) for chosen in left_out] == [0, 1, 1, 0]


def test_a_cosine_is_the_ordinary_schedule():
    assert fault_class("healthy")(1, 2).rate(300, 800) == cosine_lr(300, 800)
    assert isinstance(fault_class("healthy")(1, 2).loader(standard_library(), 0), Loader)
