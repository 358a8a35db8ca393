"""Parameter names of real code bases, and the awkward kinds of parameter."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from trainer_hooks.signals.groups import (  # noqa: E402
    by_group,
    clean_name,
    group_of,
    named_parameters,
)

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("name", "group"),
    [
        # GPT-2 and nanoGPT
        ("transformer.wte.weight", "emb"),
        ("transformer.wpe.weight", "emb"),
        ("transformer.h.0.ln_1.weight", "norm"),
        ("transformer.h.0.attn.c_attn.weight", "attn_qkv"),
        ("transformer.h.0.attn.c_proj.weight", "attn_o"),
        ("transformer.h.0.mlp.c_fc.weight", "mlp_in"),
        ("transformer.h.0.mlp.c_proj.weight", "mlp_out"),
        ("transformer.ln_f.bias", "norm"),
        ("lm_head.weight", "head"),
        # Llama, Qwen, Mistral as in transformers
        ("model.embed_tokens.weight", "emb"),
        ("model.layers.11.self_attn.q_proj.weight", "attn_q"),
        ("model.layers.11.self_attn.k_proj.weight", "attn_k"),
        ("model.layers.11.self_attn.v_proj.bias", "attn_v"),
        ("model.layers.11.self_attn.qkv_proj.weight", "attn_qkv"),
        ("model.layers.11.self_attn.k_norm.weight", "norm"),
        ("model.layers.11.self_attn.o_proj.weight", "attn_o"),
        ("model.layers.11.mlp.gate_proj.weight", "mlp_in"),
        ("model.layers.11.mlp.up_proj.weight", "mlp_in"),
        ("model.layers.11.mlp.down_proj.weight", "mlp_out"),
        ("model.layers.11.post_attention_layernorm.weight", "norm"),
        ("model.norm.weight", "norm"),
        # Llama as published, torchtitan
        ("tok_embeddings.weight", "emb"),
        ("layers.3.attention.wq.weight", "attn_q"),
        ("layers.3.attention.wk.weight", "attn_k"),
        ("layers.3.attention.wv.weight", "attn_v"),
        ("layers.3.attention.wo.weight", "attn_o"),
        ("transformer.h.2.attn.c_q.weight", "attn_q"),
        ("model.layers.0.self_attn.q_b_proj.weight", "attn_q"),
        ("model.layers.0.self_attn.kv_b_proj.weight", "attn_qkv"),
        ("blocks.0.attn.to_k.weight", "attn_k"),
        ("layers.3.feed_forward.w1.weight", "mlp_in"),
        ("layers.3.feed_forward.w2.weight", "mlp_out"),
        ("layers.3.feed_forward.w3.weight", "mlp_in"),
        ("layers.3.ffn_norm.weight", "norm"),
        ("output.weight", "head"),
        # GPT-NeoX
        ("gpt_neox.embed_in.weight", "emb"),
        ("gpt_neox.layers.0.attention.query_key_value.weight", "attn_qkv"),
        ("gpt_neox.layers.0.attention.dense.weight", "attn_o"),
        ("gpt_neox.layers.0.mlp.dense_h_to_4h.weight", "mlp_in"),
        ("gpt_neox.layers.0.mlp.dense_4h_to_h.weight", "mlp_out"),
        ("embed_out.weight", "head"),
        # BERT
        ("encoder.layer.0.attention.self.query.weight", "attn_q"),
        ("encoder.layer.0.attention.self.key.bias", "attn_k"),
        ("encoder.layer.0.attention.self.value.weight", "attn_v"),
        ("encoder.layer.0.attention.output.dense.weight", "attn_o"),
        ("encoder.layer.0.intermediate.dense.weight", "mlp_in"),
        ("encoder.layer.0.output.dense.weight", "mlp_out"),
        # T5
        ("shared.weight", "emb"),
        ("encoder.block.0.layer.0.SelfAttention.q.weight", "attn_q"),
        ("encoder.block.0.layer.0.SelfAttention.k.weight", "attn_k"),
        ("encoder.block.0.layer.0.SelfAttention.o.weight", "attn_o"),
        ("encoder.block.0.layer.1.DenseReluDense.wi_0.weight", "mlp_in"),
        ("encoder.block.0.layer.1.DenseReluDense.wo.weight", "mlp_out"),
        # torch's own layers
        ("encoder.layers.0.self_attn.in_proj_weight", "attn_qkv"),
        ("encoder.layers.0.self_attn.out_proj.weight", "attn_o"),
        ("encoder.layers.0.linear1.weight", "mlp_in"),
        ("encoder.layers.0.linear2.weight", "mlp_out"),
        ("encoder.layers.0.norm1.weight", "norm"),
        # mixtures of experts, LoRA, and what fits nowhere
        ("model.layers.0.block_sparse_moe.gate.weight", "router"),
        ("model.layers.0.mlp.gate.weight", "router"),
        ("model.layers.0.mlp.experts.3.down_proj.weight", "mlp_out"),
        ("model.layers.0.self_attn.q_proj.lora_A.default.weight", "lora"),
        ("conv1.weight", "other"),
    ],
)
def test_group_of_known_code_bases(name, group):
    assert group_of(name) == group


@pytest.mark.parametrize(
    ("wrapped", "clean"),
    [
        ("_orig_mod.lm_head.weight", "lm_head.weight"),
        ("module._orig_mod.blocks.0._orig_mod.up.weight", "module.blocks.0.up.weight"),
        (
            "_fsdp_wrapped_module.layers.0._checkpoint_wrapped_module.w1.weight",
            "layers.0.w1.weight",
        ),
        ("submodule.weight", "submodule.weight"),
    ],
)
def test_wrappers_leave_the_names(wrapped, clean):
    assert clean_name(wrapped) == clean


def test_a_compiled_model_has_the_names_of_the_plain_one():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    compiled = torch.compile(model, backend="eager")
    assert [p.name for p in named_parameters(compiled)] == [p.name for p in named_parameters(model)]


def test_tied_embedding_and_head_are_one_parameter_in_a_group_of_their_own():
    model = nn.ModuleDict({"tok_emb": nn.Embedding(5, 3), "lm_head": nn.Linear(3, 5, bias=False)})
    model["lm_head"].weight = model["tok_emb"].weight
    (only,) = named_parameters(model)
    assert (only.name, only.group) == ("tok_emb.weight", "emb_head")


def test_parameters_that_only_the_optimizer_knows_are_there_once():
    model = nn.Linear(2, 2, bias=False)
    extra = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([model.weight, extra], lr=0.1)
    found = named_parameters(model, [optimizer])
    assert [p.name for p in found] == ["weight", "optimizer0.group0.1"]


def test_empty_and_integer_parameters_are_not_measured():
    model = nn.Module()
    model.empty = nn.Parameter(torch.empty(0, 4))
    model.counts = nn.Parameter(torch.arange(4), requires_grad=False)
    model.real = nn.Parameter(torch.ones(4))
    kept = by_group(named_parameters(model))
    assert [p.name for group in kept.values() for p in group] == ["real"]


def test_patterns_of_the_users_own_go_first():
    model = nn.ModuleDict({"tower": nn.Linear(2, 2), "lm_head": nn.Linear(2, 2, bias=False)})
    found = named_parameters(model, own={"vision": r"^tower\.w", "text": "head|tower"})
    assert {p.name: p.group for p in found} == {
        "tower.weight": "vision", "tower.bias": "text", "lm_head.weight": "text",
    }  # fmt: skip


def fused():
    """Queries, keys and values in one matrix: 2, 1 and 1 rows of 3."""
    layer = nn.Linear(3, 4)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 0, 0], [0, 4.0, 0], [0, 0, 2.0], [1.0, 0, 0]]))
        layer.bias.zero_()
    return nn.ModuleDict({"c_attn": layer})


SLICES = {r"c_attn\.weight": {"attn_q": (0, 2), "attn_k": (2, 3), "attn_v": (3, 4)}}


def test_a_fused_parameter_is_measured_by_its_declared_slices():
    from trainer_hooks.signals.base import Subject
    from trainer_hooks.signals.gradient import Gradient
    from trainer_hooks.signals.update import Update
    from trainer_hooks.signals.weights import Weights

    model = fused()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    parameters = named_parameters(model, [optimizer], slices=SLICES)
    assert [p.name for p in parameters] == [
        "c_attn.weight[attn_q]", "c_attn.weight[attn_k]", "c_attn.weight[attn_v]", "c_attn.bias",
    ]  # fmt: skip
    signals = [
        kind(Subject(model, [optimizer], parameters)) for kind in (Update, Gradient, Weights)
    ]
    model["c_attn"].weight.grad = torch.zeros(4, 3)
    model["c_attn"].weight.grad[2, 0] = 2.0  # turns the key by 45 degrees
    model["c_attn"].bias.grad = torch.zeros(4)
    for signal in signals:
        signal.before_update(1)
    optimizer.step()
    for signal in signals:
        signal.after_update(1)
    found = {key: v.item() for signal in signals for key, v in signal.measure(1).items()}
    assert found["weight_norm/attn_q"] == pytest.approx(5.0)
    assert found["weight_norm/attn_k"] == pytest.approx(8**0.5)
    assert found["weight_norm/attn_v"] == pytest.approx(1.0)
    assert found["weight_norm/total"] == pytest.approx((25 + 8 + 1) ** 0.5)
    assert found["weight_rms/attn_q"] == pytest.approx(5.0 / 6**0.5)
    assert (found["grad_norm/attn_q"], found["grad_norm/attn_k"]) == (0.0, 2.0)
    assert found["update_ratio/attn_k"] == pytest.approx(1.0)
    assert found["update_ratio/attn_q"] == 0.0
    assert found["effective_lr/attn_k"] == pytest.approx(0.785398, abs=1e-6)
    assert found["update_coverage/attn_k"] == pytest.approx(1 / 3)
    assert found["update_coverage/total"] == pytest.approx(1 / 16)
    assert "effective_lr/attn_qkv" not in found


def test_slices_lie_along_the_dimension_that_they_fill():
    columns = nn.Parameter(torch.zeros(3, 4))  # as a Conv1D of GPT-2 has them
    model = nn.ParameterDict({"c_attn": columns})
    parts = named_parameters(model, slices={"c_attn": {"attn_q": (0, 3), "attn_v": (3, 4)}})
    assert [tuple(p.tensor.shape) for p in parts] == [(3, 3), (3, 1)]
    with torch.no_grad():
        columns[:, 3] = 7.0
    assert parts[1].tensor.sum().item() == 21.0  # as it is now
    with pytest.raises(ValueError, match="slices up to 9 of c_attn"):
        named_parameters(model, slices={"c_attn": {"attn_q": (0, 9)}})
