"""What real loops do: compiled, wrapped, frozen, sparse, complex, fused, skipped; by symptom."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import Received, StubServer
from trainer_hooks import Probe, watch

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


@pytest.fixture
def begin(server: StubServer, tmp_path: Path) -> Any:
    """``begin(model, optimizer, **options)``: a watch that measures every step."""

    def start(model: Any, optimizer: Any, **options: Any) -> Any:
        options = {"every": {"weights": 1, "probe": 1}, "overhead_budget": None} | options
        return watch(model, optimizer, server=server.url, spool_dir=tmp_path, **options)

    return start


def notes(received: Received) -> list[dict[str, Any]]:
    return [event for event in received.records("event") if event["name"] == "note"]


def train(model: Any, optimizer: Any, w: Any, loss_of: Any, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        w.step(loss=loss)
    w.close()


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))


def ids() -> Any:
    return torch.arange(8).view(2, 4)


# Mixed precision, accumulation, closures.


def test_a_skipped_update_is_a_step_of_the_loop_and_not_of_the_weights(
    begin: Any, server: StubServer
) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    w = begin(model, optimizer, scaler=scaler)
    for factor in (1.0, math.inf, 1.0):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        w.step(loss=loss)
    w.close()
    got = server.received
    last = {name: got.series(f"updates/{name}")[3] for name in ("attempted", "applied", "skipped")}
    assert last == {"attempted": 3, "applied": 2, "skipped": 1}
    assert got.series("loss_scale") == {1: 65536.0, 2: 32768.0, 3: 32768.0}
    assert got.series("update_ratio/total")[2] == 0.0
    assert got.series("effective_lr/other")[2] == 0.0
    assert got.series("update_ratio/total")[3] > 0


def test_a_loss_of_unequal_micro_batches_is_weighted_or_says_that_it_is_not(
    begin: Any, server: StubServer
) -> None:
    w = begin(None, None)
    for loss, tokens in ((1.0, 10), (2.0, 10), (3.0, 10), (6.0, 70)):
        w.micro(torch.tensor(loss), tokens)
    w.step()
    for loss in (1.0, 2.0, 3.0, 6.0):
        w.micro(loss)
    w.step()
    for loss, tokens in ((2.0, 10), (math.nan, 0)):
        w.micro(torch.tensor(loss), tokens)
    w.step()
    w.close()
    losses = server.received.series("loss/train")
    assert losses == {1: pytest.approx(4.8), 2: 3.0, 3: 2.0}
    assert server.received.series("tokens_seen")[1] == 100
    (note,) = notes(server.received)
    assert note["step"] == 2
    assert note["data"] == {"weighting": "micro_batch"}


def test_a_line_search_is_one_step_with_its_first_loss(begin: Any, server: StubServer) -> None:
    x = nn.Parameter(torch.tensor([2.0, -1.5]))
    model = nn.ParameterDict({"x": x})
    optimizer = torch.optim.LBFGS([x], max_iter=5, line_search_fn="strong_wolfe")
    calls: list[float] = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (x**4).sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    w = begin(model, optimizer)
    firsts = []
    for _ in range(2):
        before = len(calls)
        loss = optimizer.step(closure)
        firsts.append(calls[before])
        w.step(loss=loss)
    w.close()
    got = server.received
    assert list(got.series("loss/train").values()) == pytest.approx(firsts)
    assert sum(got.series("closure_calls").values()) == len(calls)
    assert len(calls) > 2


def test_a_loss_that_is_nan_once_is_not_averaged_away(begin: Any, server: StubServer) -> None:
    w = begin(None, None)
    for step in range(1, 11):
        w.step(loss=torch.tensor(math.nan if step == 4 else 1.0))
    w.close()
    losses = server.received.series("loss/train")
    assert losses.pop(4) == "nan"
    assert set(losses.values()) == {1.0}


# Parameters of every kind.


class Kinds(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.waves = nn.Parameter(torch.tensor([3 + 4j, 0j]))
        self.counts = nn.Parameter(torch.arange(3), requires_grad=False)
        self.nothing = nn.Parameter(torch.empty(0))
        self.table = nn.Embedding(10, 2, sparse=True)
        nn.init.zeros_(self.table.weight)


def test_complex_integer_empty_and_sparse_parameters(begin: Any, server: StubServer) -> None:
    model = Kinds()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    w = begin(model, optimizer)

    def loss() -> Any:
        return model.table(torch.tensor([1, 1, 2])).sum() + 0 * model.waves.abs().sum()

    train(model, optimizer, w, loss, 2)
    got = server.received
    assert got.series("weight_norm/other")[1] == pytest.approx(5.0)
    assert got.series("grad_norm/other")[1] == pytest.approx(3.16228, abs=1e-5)
    assert w.tally().hook_errors == 0
    assert any("2 parameters of integers" in note["text"] for note in notes(got))


def test_gradients_that_are_not_finite_are_named(begin: Any, server: StubServer) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    w = begin(model, optimizer)
    for step in range(1, 4):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        if step == 2:
            model[1].weight.grad[0, 0] = math.nan
            model[2].bias.grad[1] = math.inf
        optimizer.step()
        w.step(loss=1.0)
    w.close()
    got = server.received
    assert got.series("grad_norm/other")[2] in ("nan", "inf")
    assert isinstance(got.series("grad_norm/other")[3], float)
    (note,) = notes(got)
    assert note["step"] == 2
    assert note["data"]["parameters"] == "1.weight, 2.bias"
    assert w.tally().hook_errors == 0


class Adapted(nn.Module):  # type: ignore[misc, name-defined]
    """A frozen layer with two adapter matrices, of which one is zero, and a stray parameter."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Linear(4, 4, bias=False).requires_grad_(False)
        self.lora_A = nn.Parameter(torch.ones(2, 4))
        self.lora_B = nn.Parameter(torch.zeros(4, 2))
        self.stray = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


def test_frozen_weights_adapters_and_a_parameter_nobody_trains(
    begin: Any, server: StubServer
) -> None:
    model = Adapted()
    optimizer = torch.optim.SGD([model.lora_A, model.lora_B], lr=0.1)
    model.stray.grad = torch.full((3,), math.nan)
    w = begin(model, optimizer, layers=["lora_B"])

    def loss() -> Any:
        return model(torch.ones(1, 4)).sum()

    train(model, optimizer, w, loss)
    got = server.received
    names = {key for _, key, _ in got.values()}
    assert {"weight_norm/lora", "grad_norm/lora", "update_ratio/lora"} <= names
    assert len(set(got.series("weight_norm/other").values())) == 1
    assert "grad_norm/other" not in names
    assert "update_ratio/other" not in names
    assert all(isinstance(v, float) for v in got.series("grad_norm/lora").values())
    assert 1 not in got.series("update_ratio/lora_B")  # of zero: undefined, not infinite
    assert 2 in got.series("update_ratio/lora_B")
    strays = [note for note in notes(got) if "stray" in note["text"]]
    assert len(strays) == 1


def test_weight_norm_and_spectral_norm_show_the_weight_that_is_used(
    begin: Any, server: StubServer
) -> None:
    from torch.nn.utils import parametrizations

    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    with torch.no_grad():
        layer.parametrizations.weight.original0.fill_(2.0)
    spectral = parametrizations.spectral_norm(nn.Linear(3, 3))
    model = nn.Sequential(layer, spectral)
    vector = spectral.parametrizations.weight[0]._u.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    w = begin(model, optimizer, layers=["weight"])
    for _ in range(3):
        w.step(loss=1.0)
    w.close()
    got = server.received
    assert got.series("weight_norm/0.weight")[1] == pytest.approx(2.828427, abs=1e-5)
    assert got.series("weight_norm/0.parametrizations.weight.original0")[1] == pytest.approx(
        math.sqrt(8), abs=1e-5
    )
    assert torch.equal(spectral.parametrizations.weight[0]._u, vector)
    assert model.training


def test_halves_do_not_overflow(begin: Any, server: StubServer) -> None:
    model = nn.ParameterDict({
        "sixteen": nn.Parameter(torch.full((1_000_000,), 100.0, dtype=torch.float16)),
        "norm_big": nn.Parameter(torch.full((4,), 1e20)),
        "head": nn.Parameter(torch.tensor([1.0, math.inf])),
    })  # fmt: skip
    w = begin(model, torch.optim.SGD(model.parameters(), lr=0.0), layers=["sixteen", "big", "head"])
    w.step(loss=1.0)
    w.close()
    got = server.received
    assert got.series("weight_norm/sixteen")[1] == pytest.approx(1e5, rel=1e-3)
    assert got.series("weight_norm/norm_big")[1] == pytest.approx(2e20, rel=1e-3)
    assert got.series("weight_norm/head")[1] == "inf"


# Parameter groups.


def test_learning_rates_by_name_by_number_and_twice(begin: Any, server: StubServer) -> None:
    parts = [nn.Parameter(torch.ones(2)) for _ in range(6)]
    model = nn.ParameterList(parts)
    groups = [
        {"params": [parts[0]], "name": "decay"},
        {"params": [parts[1]], "name": "no_decay", "lr": torch.tensor(0.25)},
        {"params": [], "name": "head"},
        {"params": [parts[2]]},
        {"params": [parts[3]], "name": "decay"},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    w = begin(model, optimizer, every={"weights": 10})
    for step in range(1, 53):
        if step == 50:
            optimizer.add_param_group({"params": [parts[4]], "name": "late", "lr": 0.5})
        w.step(loss=1.0)
    w.close()
    got = server.received
    rates = {key for _, key, _ in got.values() if key.startswith("lr/")}
    assert rates == {"lr/decay", "lr/no_decay", "lr/head", "lr/group3", "lr/decay#2", "lr/late"}
    assert min(got.series("lr/late")) == 50
    assert got.series("lr/no_decay")[7] == 0.25


def test_two_optimizers_make_one_step(begin: Any, server: StubServer) -> None:
    model = mlp()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[1:].parameters(), lr=0.01)
    w = begin(model, [first, second])
    for _ in range(3):
        loss = model(torch.ones(1, 4)).square().sum()
        loss.backward()
        first.step()
        second.step()
        w.step(loss=loss)
    w.close()
    got = server.received
    assert sorted(got.series("loss/train")) == [1, 2, 3]
    assert got.series("update_coverage/total")[1] == 1.0
    assert not got.series("update_skipped")


# Compiling, wrapping, checkpointing.


def test_names_do_not_change_with_the_wrapper() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    from trainer_hooks.signals.groups import named_parameters

    plain = mlp()
    wanted = [parameter.name for parameter in named_parameters(plain)]
    assert wanted[0] == "0.weight"

    class DistributedDataParallel(nn.Module):  # type: ignore[misc, name-defined]
        """Holds a module as torch's own does, without a process group."""

        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    compiled = torch.compile(mlp(), backend="eager")
    inner = nn.Sequential(*(checkpoint_wrapper(layer) for layer in mlp()))
    for wrapped in (
        compiled,
        DistributedDataParallel(mlp()),
        DistributedDataParallel(compiled),
        torch.compile(DistributedDataParallel(mlp()), backend="eager"),
        DistributedDataParallel(DistributedDataParallel(inner)),
        inner,
    ):
        assert [p.name for p in named_parameters(wrapped)] == wanted
    own = nn.ModuleDict({"module": nn.Linear(2, 2)})
    assert named_parameters(own)[0].name == "module.weight"


def test_hooks_break_no_graph(begin: Any) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    w = begin(model, optimizer, probe=Probe(torch.ones(2, 4), torch.zeros(2, dtype=torch.long)))
    torch.compiler.reset()
    found = torch._dynamo.explain(model)(torch.ones(2, 4))
    assert (found.graph_count, found.graph_break_count) == (1, 0)
    frames: list[int] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        frames.append(1)
        return graph.forward

    compiled = torch.compile(model, backend=backend)
    train(model, optimizer, w, lambda: compiled(torch.ones(2, 4)).square().sum(), 4)
    assert len(frames) == 1  # the probe compiles nothing, and no hook makes it compile again
    assert w.tally().hook_errors == 0


@pytest.mark.parametrize("is_late", [False, True])
def test_a_model_compiled_before_it_is_watched_is_said(
    begin: Any, server: StubServer, is_late: bool
) -> None:
    torch.compiler.reset()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager")
    if is_late:
        compiled(torch.ones(2, 4))
    w = begin(model, optimizer, probe=Probe(torch.ones(2, 4), torch.zeros(2, dtype=torch.long)))
    train(model, optimizer, w, lambda: compiled(torch.ones(2, 4)).square().sum(), 4)
    said = [note["text"] for note in notes(server.received) if "not observed" in note["text"]]
    assert len(said) == int(is_late)


def test_activation_checkpointing_counts_nothing_twice(begin: Any, server: StubServer) -> None:
    from torch.utils.checkpoint import checkpoint

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    w = begin(model, optimizer)
    x = torch.ones(2, 4)
    train(model, optimizer, w,
          lambda: checkpoint(model, x, use_reentrant=False).square().sum())  # fmt: skip
    assert sorted(server.received.series("loss/train")) == [1, 2, 3]
    assert w.tally().hook_errors == 0


# Outputs without logits, labels that do not count.


class Fused(nn.Module):  # type: ignore[misc, name-defined]
    """Gives its loss only, in one of the forms that models give it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.emb = nn.Embedding(8, 8)
        self.lm_head = nn.Linear(8, 8)

    def forward(self, inputs: Any) -> Any:
        loss = self.lm_head(self.emb(inputs)).square().mean()
        forms = {"loss": loss, "tuple": (loss, None), "dict": {"loss": loss, "logits": None}}
        if self.form in forms:
            return forms[self.form]
        return type("Output", (), {"loss": loss, "logits": None})()


@pytest.mark.parametrize("form", ["loss", "tuple", "dict", "dataclass"])
def test_a_fused_loss_has_no_logits_and_no_zeros(begin: Any, server: StubServer, form: str) -> None:
    model = Fused(form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    w = begin(model, optimizer, probe=Probe(ids(), ids()))

    def loss() -> Any:
        return model.lm_head(model.emb(ids())).square().mean()

    train(model, optimizer, w, loss)
    got = server.received
    (event,) = [e for e in got.records("event") if e["name"] == "signal_off"]
    assert event["data"] == {"signal": "probe", "reason": "no_logits"}
    names = {key for _, key, _ in got.values()}
    assert not any(name.endswith("/probe") for name in names)
    assert {"loss/train", "weight_norm/total"} <= names
    assert w.tally().hook_errors == 0


def test_a_fused_model_is_probed_through_its_head(begin: Any, server: StubServer) -> None:
    model = Fused("loss")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    forward = lambda m, i: (m.emb(i), m.lm_head)  # noqa: E731
    w = begin(model, optimizer, probe=Probe(ids(), ids(), forward=forward))
    train(model, optimizer, w, lambda: model(ids()))
    assert sorted(server.received.series("top1/probe")) == [1, 2, 3]


def test_masked_labels_count_for_nothing() -> None:
    from trainer_hooks.probe import calibration

    logits = torch.zeros(4, 20)
    logits[0, 0] = logits[1, 1] = 9.0  # masked positions, whatever they say
    logits[2, 5] = 9.0
    logits[3, 8:17] = torch.arange(9, 0, -1).float()
    logits[3, 7] = 0.5
    labels = torch.tensor([-100, -100, 5, 7])
    found = calibration(logits, labels)
    assert found["top1"].item() == 0.5
    assert found["top10"].item() == 1.0
    packed = calibration(logits[2:], labels[2:])
    assert {k: v.item() for k, v in found.items()} == {k: v.item() for k, v in packed.items()}
    assert calibration(logits, torch.full((4,), -100)) == {}
    padding = torch.cat([labels, torch.full((100,), -100)])
    padded = calibration(torch.cat([logits, torch.randn(100, 20)]), padding)
    assert padded["entropy"].item() == pytest.approx(found["entropy"].item(), abs=1e-6)


def test_padded_columns_of_the_vocabulary_carry_no_probability() -> None:
    from trainer_hooks.probe import calibration

    found = calibration(torch.zeros(4, 50_304), torch.arange(4), vocab=50_257)
    assert found["entropy"].item() == pytest.approx(10.8249, abs=1e-4)


# Time.


@pytest.mark.parametrize(("wait_s", "work_s"), [(0.0, 0.05), (0.03, 0.01)])
def test_data_wait_is_the_loaders_and_not_the_devices(
    begin: Any, server: StubServer, wait_s: float, work_s: float
) -> None:
    import time

    def loader() -> Iterator[int]:
        for i in range(20):
            time.sleep(wait_s)
            yield i

    w = begin(None, None)
    for _ in w.data(loader()):
        time.sleep(work_s)
        w.step(loss=1.0)
    w.close()
    waits = sorted(server.received.series("data_wait_s").values())
    share = server.received.series("data_wait_share")[20]
    if wait_s:
        assert waits[10] == pytest.approx(0.03, abs=0.005)
        assert share == pytest.approx(0.75, abs=0.05)
    else:
        assert waits[10] < 0.002
        assert share < 0.05


def test_relative_updates_of_growing_weights(begin: Any, server: StubServer) -> None:
    weight = nn.Parameter(torch.full((100,), 1.0))
    model = nn.ParameterDict({"w": weight})
    optimizer = torch.optim.SGD([weight], lr=1.0)
    w = begin(model, optimizer)
    for size in (1.0, 2.0):  # norms 10 and 20, a change of 0.01
        with torch.no_grad():
            weight.fill_(size)
        weight.grad = torch.full((100,), 0.001)
        optimizer.step()
        w.step(loss=1.0)
    w.close()
    ratios = server.received.series("update_ratio/other")
    assert ratios == {1: pytest.approx(1e-3, rel=1e-3), 2: pytest.approx(5e-4, rel=1e-3)}
