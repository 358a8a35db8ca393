"""The watcher itself fails: training goes on, it is counted, three in a row end that part."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import Attention, Feed, Probe, watch
from trainer_hooks.signals import SIGNALS

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [pytest.mark.torch, pytest.mark.timeout(60)]
STEPS = 8
IDS = torch.arange(16).view(2, 8)


class Model(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb = nn.Embedding(16, 4)
        self.q_proj, self.k_proj = nn.Linear(4, 4), nn.Linear(4, 4)
        self.lm_head = nn.Linear(4, 16)

    def forward(self, ids_BT: Any) -> Any:
        x = self.emb(ids_BT)
        return self.lm_head(self.q_proj(x) + self.k_proj(x))


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


def train(w: Any, model: Any, optimizer: Any, *, spoil: Any = None) -> list[str]:
    """A few steps whose losses are known, bit for bit."""
    losses = []
    for step in range(1, STEPS + 1):
        for ids in w.data([IDS]) if w is not None else [IDS]:
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        if spoil is not None:
            spoil(step, model)
        optimizer.step()
        losses.append(loss.item().hex())
        if w is not None:
            w.step(loss=loss, tokens=IDS.numel())
    return losses


def made(server: StubServer, folder: Path, **options: Any) -> tuple[Any, Any, Any]:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    w = watch(
        model, optimizer, server=server.url, spool_dir=folder, probe=Probe(IDS, IDS),
        attention=Attention(heads=1), every={"weights": 1, "probe": 1}, overhead_budget=None,
        **options,
    )  # fmt: skip
    return model, optimizer, w


def plain_losses() -> list[str]:
    model = Model()
    return train(None, model, torch.optim.SGD(model.parameters(), lr=0.1))


PARTS = [
    (name, method)
    for name in SIGNALS
    for method in ("before_update", "after_update", "measure")
    if method == "measure" or name in ("update", "gradient", "learning_rate")
    if (name, method) not in {("gradient", "after_update"), ("learning_rate", "after_update")}
]


@pytest.mark.parametrize(("name", "method"), PARTS)
def test_a_signal_that_raises_is_counted_and_after_three_in_a_row_switched_off(
    server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, method: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    module, _, kind = SIGNALS[name].partition(":")

    def broken(self: Any, step: int) -> Any:
        raise ZeroDivisionError(f"in {name}")

    monkeypatch.setattr(getattr(import_module(module), kind), method, broken)
    model, optimizer, w = made(server, tmp_path)
    losses = train(w, model, optimizer)
    w.close()
    assert losses == plain_losses()
    got = server.received
    assert len(got.series("loss/train")) == STEPS
    (off,) = [e for e in got.records("event") if e["name"] == "signal_off"]
    assert off["data"] == {"signal": name}
    assert "ZeroDivisionError" in off["text"]
    assert got.records("heartbeat")[-1]["hook_errors"] == 3
    said = [r for r in caplog.records if r.exc_info and r.levelno >= logging.WARNING]
    assert len(said) == 1  # at most one a minute
    others = {"weights": "weight_norm/total", "update": "update_ratio/total", "probe": "loss/probe"}
    for other, key in others.items():
        assert bool(got.series(key).keys() >= {STEPS}) == (other != name)


def test_two_failures_and_a_success_switch_nothing_off(
    server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer_hooks.signals.weights import Weights

    right = Weights.measure

    def moody(self: Any, step: int) -> Any:
        if step % 3:
            raise ZeroDivisionError
        return right(self, step)

    monkeypatch.setattr(Weights, "measure", moody)
    model, optimizer, w = made(server, tmp_path)
    train(w, model, optimizer)
    w.close()
    assert sorted(server.received.series("weight_norm/total")) == [3, 6]
    assert [e for e in server.received.records("event") if e["name"] == "signal_off"] == []
    assert server.received.records("heartbeat")[-1]["hook_errors"] == 6


def test_what_looks_at_the_data_raises_and_training_goes_on(
    server: StubServer, tmp_path: Path
) -> None:
    def broken(batch: Any) -> Any:
        raise ZeroDivisionError

    model, optimizer, w = made(server, tmp_path, feed=Feed(sources=broken))
    losses = train(w, model, optimizer)
    w.close()
    assert losses == plain_losses()
    assert len(server.received.series("loss/train")) == STEPS
    assert server.received.records("heartbeat")[-1]["hook_errors"] >= 1


@pytest.mark.parametrize(
    ("what", "told"),
    [("nan", "nan"), ("inf", "inf"), ("equal", 2.0), ("nan and inf", "nan")],
)
def test_a_gradient_of_any_kind_is_a_value_and_no_failure(
    server: StubServer, tmp_path: Path, what: str, told: object
) -> None:
    """NaN, infinite, and all alike, which a histogram would have no range for."""

    def spoil(step: int, model: Any) -> None:
        if step != STEPS:
            return
        grad = model.lm_head.bias.grad
        if what == "equal":
            grad.fill_(0.5)
            model.lm_head.weight.grad.zero_()
        if "nan" in what:
            grad[0] = math.nan
        if "inf" in what:
            grad[1] = math.inf

    model, optimizer, w = made(server, tmp_path)
    train(w, model, optimizer, spoil=spoil)
    w.close()
    norms = server.received.series("grad_norm/head")
    assert norms[STEPS] == (pytest.approx(told) if what == "equal" else told)
    others = [value for step, value in norms.items() if step != STEPS]
    assert len(others) == STEPS - 1
    assert all(isinstance(value, float) for value in others)
    assert isinstance(server.received.series("grad_norm/emb")[STEPS], float)
    assert w.tally().hook_errors == 0
    named = [e["data"] for e in server.received.records("event") if "not finite" in e["text"]]
    assert named == ([] if what == "equal" else [{"parameters": "lm_head.bias"}])
