"""Series of single layers, which a run gets on request: their names, their exact values."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import Attention, Probe, watch

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [pytest.mark.torch, pytest.mark.timeout(60)]


def test_a_parameter_that_was_asked_for_has_all_four_series_of_its_own(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with StubServer() as server:
        w = watch(
            model, optimizer, server=server.url, spool_dir=tmp_path, layers=[r"^0\.", "bias"],
            every={"weights": 1}, overhead_budget=None,
        )  # fmt: skip
        # W = diag(3, 4) and dW = [[0, -5], [0, 0]], at a right angle to it and as long.
        model[0].weight.grad = torch.tensor([[0.0, 5.0], [0.0, 0.0]])
        model[1].weight.grad = torch.zeros(2, 2)
        model[1].bias.grad = torch.tensor([0.6, 0.8])
        optimizer.step()
        w.step(loss=1.0)
        w.close()
        got = server.received
    assert got.series("weight_norm/0.weight")[1] == pytest.approx(math.sqrt(50))
    assert got.series("grad_norm/0.weight") == {1: pytest.approx(5.0)}
    assert got.series("update_ratio/0.weight") == {1: pytest.approx(1.0)}
    assert got.series("effective_lr/0.weight") == {1: pytest.approx(math.pi / 4, rel=1e-6)}
    assert got.series("grad_norm/1.bias") == {1: pytest.approx(1.0)}
    names = {key for _, key, _ in got.values()}
    assert "weight_norm/1.weight" not in names
    assert "effective_lr/1.bias" not in names  # a vector of biases does not turn
    described = {record["key"]: record["help"] for record in got.records("series")}
    assert names <= described.keys()
    assert described["effective_lr_max/other"].endswith(": 0.weight")


def test_attention_logits_come_with_the_probe_and_only_where_they_were_asked_for(
    tmp_path: Path,
) -> None:
    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.Embedding(4, 4)
            self.attn = nn.ModuleDict({n: nn.Linear(4, 4) for n in ("q_proj", "k_proj")})
            for layer in self.attn.values():
                nn.init.eye_(layer.weight)
                nn.init.zeros_(layer.bias)
            nn.init.eye_(self.emb.weight)
            with torch.no_grad():
                self.emb.weight[3] *= 6

        def forward(self, ids: object) -> object:
            x = self.emb(ids)
            return self.attn["q_proj"](x) + self.attn["k_proj"](x)

    ids = torch.tensor([[0, 1, 2, 3]])
    for attention in (None, Attention(heads=1)):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with StubServer() as server:
            w = watch(
                model, optimizer, server=server.url, spool_dir=tmp_path, attention=attention,
                probe=Probe(ids, ids), every={"probe": 2}, overhead_budget=None,
            )  # fmt: skip
            for _ in range(4):
                w.step(loss=model(ids).sum())
            w.close()
            series = server.received.series("attn_logit_max/attn")
            asleep = {a["what"] for a in server.received.records("run_start")[0]["asleep"]}
        # The longest query and key, 6 each, over the root of the width 4.
        assert series == ({} if attention is None else {1: 18.0, 2: 18.0, 4: 18.0})
        assert ("attention" in asleep) == (attention is None)
        assert w.tally().hook_errors == 0


def test_a_parametrized_model_is_compiled_in_one_graph_watched_or_not(tmp_path: Path) -> None:
    from torch.nn.utils import parametrizations

    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(3, 3)),
        parametrizations.spectral_norm(nn.Linear(3, 2)),
    )
    x = torch.ones(2, 3)
    for is_watched in (False, True):
        torch.compiler.reset()
        if is_watched:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            w = watch(model, optimizer, server="http://127.0.0.1:9", spool_dir=tmp_path,
                      every={"weights": 1}, overhead_budget=None)  # fmt: skip
            w.step(loss=1.0)
        found = torch._dynamo.explain(model)(x)
        assert (found.graph_count, found.graph_break_count) == (1, 0)
    w.close(timeout_s=0.5)
    assert w.tally().hook_errors == 0
