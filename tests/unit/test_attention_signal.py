"""The largest attention logit of each layer: by hand, by module names, graphs left alone."""

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from trainer_hooks import Attention, Probe  # noqa: E402
from trainer_hooks.signals.attention import AttentionLogits, find_layers, largest_logit  # noqa: E402
from trainer_hooks.signals.base import AsleepError, Subject  # noqa: E402

pytestmark = pytest.mark.torch
HEADS, WIDTH = 2, 8


class Layer(nn.Module):
    """Attention as most code bases have it; ``kind`` says how queries and keys are made."""

    def __init__(self, kind="apart"):
        super().__init__()
        self.kind = kind
        if kind == "fused":
            self.c_attn = nn.Linear(WIDTH, WIDTH + 2 * WIDTH // 2, bias=False)  # one key head
        else:
            self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
            self.k_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        if kind == "normed":
            self.q_norm, self.k_norm = nn.RMSNorm(4), nn.RMSNorm(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x_BTD):
        if self.kind == "fused":
            q, k, v = self.c_attn(x_BTD).split([8, 4, 4], -1)
            q = q.view(*x_BTD.shape[:2], HEADS, 4)
            k, v = (part.unsqueeze(2).expand_as(q) for part in (k, v))
        else:
            q, k = (p(x_BTD).unflatten(-1, (HEADS, 4)) for p in (self.q_proj, self.k_proj))
            v = k
        if self.kind == "normed":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x_BTD + self.dropout(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, kind="apart"):
        super().__init__()
        torch.manual_seed(0)
        self.emb = nn.Embedding(16, WIDTH)
        self.blocks = nn.ModuleList(Layer(kind) for _ in range(2))
        self.lm_head = nn.Linear(WIDTH, 16)

    def forward(self, ids_BT):
        x = self.emb(ids_BT)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


IDS = torch.arange(24).view(2, 12) % 16


def signal_of(model, **given):
    extras = {"probe": Probe(IDS, IDS), "attention": Attention(**given)}
    return AttentionLogits(Subject(model, [], [], extras))


def by_hand(model, row, *, scale, exact):
    """The largest causal logit of each layer, with loops."""
    found = {}
    model.eval()
    x = model.emb(row)
    for place, block in enumerate(model.blocks):
        if block.kind == "fused":
            q, k, _ = block.c_attn(x).split([8, 4, 4], -1)
            k = k.repeat(1, 1, HEADS)
        else:
            q, k = block.q_proj(x), block.k_proj(x)
        q, k = q[0].view(-1, HEADS, 4), k[0].view(-1, HEADS, 4)
        if block.kind == "normed":
            q, k = block.q_norm(q), block.k_norm(k)
        pairs = [
            q[i, h] @ k[j, h] if exact else q[i, h].norm() * k[j, h].norm()
            for h in range(HEADS) for i in range(len(q)) for j in range(i + 1)
        ]  # fmt: skip
        found[f"attn_logit_max/blocks.{place}"] = scale * max(pairs).item()
        x = block(x)
    model.train()
    return found


@pytest.mark.parametrize("kind", ["apart", "fused", "normed"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("scale", [None, 0.25])
def test_it_is_what_loops_over_heads_and_positions_find(kind, exact, scale):
    model = Model(kind)
    signal = signal_of(model, heads=HEADS, kv_heads=1, exact=exact, scale=scale)
    expected = by_hand(model, IDS[:1], scale=scale or 1 / math.sqrt(4), exact=exact)
    found = {key: value.item() for key, value in signal.measure(1).items()}
    assert found == pytest.approx(expected, rel=1e-5)
    assert set(found) == {spec.key for spec in signal.specs()}


def test_values_by_hand():
    # One head of width 4: |q| = 2 and 6, |k| = 3 and 10.
    q = torch.tensor([[2.0, 0, 0, 0], [0, 6.0, 0, 0]])[None, None]
    k = torch.tensor([[0, 3.0, 0, 0], [10.0, 0, 0, 0]])[None, None]
    assert largest_logit(q, k, Attention()).item() == 60.0 / 2
    assert largest_logit(q, k, Attention(scale=1 / 4)).item() == 60.0 / 4  # muP
    assert largest_logit(q, k, Attention(exact=True)).item() == 18.0 / 2
    # The first position does not see the second one's key.
    assert largest_logit(q, k, Attention(exact=True, is_causal=False)).item() == 20.0 / 2
    swapped = q.flip(2)
    assert largest_logit(swapped, k, Attention()).item() == 20.0 / 2
    assert largest_logit(swapped, k, Attention(is_causal=False)).item() == 60.0 / 2


def test_no_rotation_changes_the_bound():
    torch.manual_seed(1)
    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 1, 6, 4)
    turn = torch.linalg.qr(torch.randn(6, 4, 4)).Q  # one rotation for each position
    turned = [torch.einsum("bhtd,tde->bhte", part, turn) for part in (q, k)]
    before, after = largest_logit(q, k, Attention()), largest_logit(*turned, Attention())
    assert after.item() == pytest.approx(before.item(), rel=1e-5)
    exact = largest_logit(q, k, Attention(exact=True))
    assert exact <= before


def test_many_heads_are_looked_at_in_parts(monkeypatch):
    from trainer_hooks.signals import attention

    torch.manual_seed(1)
    q, k = torch.randn(2, 6, 5, 4), torch.randn(2, 3, 5, 4)
    whole = largest_logit(q, k, Attention(exact=True))
    monkeypatch.setattr(attention, "CHUNK", 25 * 5)
    assert largest_logit(q, k, Attention(exact=True)) == whole


def test_nan_is_told():
    q = torch.full((1, 1, 2, 4), math.nan)
    assert largest_logit(q, torch.ones(1, 1, 2, 4), Attention()).isnan()


def test_a_callable_gives_what_no_module_gives():
    model = Model("fused")

    def read(found_model, inputs_BT):
        q, k, _ = found_model.blocks[0].c_attn(found_model.emb(inputs_BT)).split([8, 4, 4], -1)
        return {"first": (q.unflatten(-1, (2, 4)).transpose(1, 2), k[:, None])}

    signal = signal_of(model, read=read, exact=True, layers=["first"])
    expected = by_hand(model, IDS[:1], scale=0.5, exact=True)["attn_logit_max/blocks.0"]
    assert signal.measure(1)["attn_logit_max/first"].item() == pytest.approx(expected, rel=1e-5)
    assert [spec.key for spec in signal.specs()] == ["attn_logit_max/first"]


def test_only_so_many_tokens_are_looked_at():
    model = Model()
    short = by_hand(model, IDS[:1, :3], scale=0.5, exact=False)
    found = signal_of(model, heads=HEADS, tokens=3).measure(1)
    assert {key: v.item() for key, v in found.items()} == pytest.approx(short, rel=1e-5)


def test_it_sleeps_until_it_can_be_told_where_to_look():
    probe = {"probe": Probe(IDS, IDS)}
    cases = [({}, "opt in"), ({"attention": Attention(heads=2)}, "held-out")]
    cases += [(probe | {"attention": Attention()}, "heads")]
    for extras, missing in cases:
        with pytest.raises(AsleepError, match=missing):
            AttentionLogits(Subject(Model(), [], [], extras))
    with pytest.raises(AsleepError, match="modules that give q and k") as caught:
        AttentionLogits(Subject(nn.Linear(2, 2), [], [], probe | {"attention": Attention(heads=2)}))
    assert "read=" in caught.value.wake


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["q_proj", "k_proj", "v_proj", "o_proj"], ("q_proj", "k_proj")),
        (["q_proj", "q_norm", "k_proj", "k_norm"], ("q_norm", "k_norm")),
        (["query", "key", "value"], ("query", "key")),
        (["wq", "wk", "wv", "wo"], ("wq", "wk")),
        (["c_q", "c_k", "c_v", "c_proj"], ("c_q", "c_k")),
        (["qkv_proj", "o_proj"], ("qkv_proj", "qkv_proj")),
        (["Wqkv", "out_proj"], ("Wqkv", "Wqkv")),
        (["up_proj", "down_proj"], None),
    ],
)
def test_modules_of_known_code_bases(names, chosen):
    layer = nn.ModuleDict({name: nn.Linear(2, 2) for name in names})
    model = torch.compile(nn.ModuleDict({"attn": layer}), backend="eager")
    found = find_layers(model, Attention(heads=2))
    if chosen is None:
        assert found == []
        return
    (one,) = found
    assert (one.name, one.queries, one.keys) == ("attn", layer[chosen[0]], layer[chosen[1]])


def test_a_look_leaves_no_listener_and_changes_nothing():
    model = Model()
    signal = signal_of(model, heads=HEADS)
    state = torch.get_rng_state()
    signal.measure(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


# torch's own, as it compiles a block whose input is no leaf.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("way", ["outside", "in_place", "by_block"])
def test_a_compiled_model_is_not_compiled_again_for_a_look(way):
    torch.compiler.reset()
    graphs = []

    def backend(graph, _inputs):
        graphs.append(1)
        return graph.forward

    model = Model()
    signal = signal_of(model, heads=HEADS)
    compiled = model
    if way == "outside":
        compiled = torch.compile(model, backend=backend)
    elif way == "in_place":
        model.compile(backend=backend)
    else:
        for block in model.blocks:
            block.compile(backend=backend)
    compiled(IDS).sum().backward()
    before = len(graphs)
    assert before >= 1
    expected = by_hand(Model(), IDS[:1], scale=0.5, exact=False)
    for step in range(3):
        found = signal.measure(step)
        assert {key: v.item() for key, v in found.items()} == pytest.approx(expected, rel=1e-5)
        compiled(IDS).sum().backward()
    assert len(graphs) == before
