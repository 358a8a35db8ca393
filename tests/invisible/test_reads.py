"""How often values are fetched from a device: on due steps only, all of them in one copy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import Probe, watch

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from trainer_hooks.loop import pending, recorder  # noqa: E402

STEPS = 100
IDS = torch.arange(64).view(4, 16) % 24


class Reads(TorchDispatchMode):  # type: ignore[misc]
    """Counts reads of single values."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += "_local_scalar_dense" in str(function)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tensors are treated as if they lay on a device; notes how many rows each copy brought."""
    copies: list[int] = []
    right = pending._start_copy

    def counted(rows: Any) -> Any:
        copies.append(len(rows))
        return right(rows)

    monkeypatch.setattr(pending, "_start_copy", counted)
    monkeypatch.setattr(pending, "_read_host", lambda row: None)
    monkeypatch.setattr(pending, "_on_cpu", lambda hashes: False)
    monkeypatch.setattr(pending, "_is_away", lambda tokens: tokens is not None)
    return copies


def train(w: Any, model: Any, optimizer: Any, *, pause_s: float = 0.0) -> list[int]:
    """Reads of single values at each step, by the hooks alone."""
    found = []
    for _ in range(STEPS):
        for ids in w.data([IDS]):
            loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with Reads() as reads:
            w.step(loss=loss, tokens=IDS.numel(), grad_norm=norm)
        found.append(reads.count)
        time.sleep(pause_s)
    return found


def begin(server: StubServer, folder: Path) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(24, 8), torch.nn.Linear(8, 24))
    # A rate that is a tensor is a value on a device too.
    rate = torch.tensor(0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    w = watch(
        model, optimizer, server=server.url, spool_dir=folder, probe=Probe(IDS, IDS),
        every={"step": 10, "weights": 10, "probe": 10}, overhead_budget=None,
    )  # fmt: skip
    return model, optimizer, w


def test_a_hundred_steps_are_fetched_in_ten_copies(
    far_away: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "READ_S", 1e9)
    with StubServer() as server:
        model, optimizer, w = begin(server, tmp_path)
        reads = train(w, model, optimizer)
        assert far_away == [10] * 10
        w.close()
        got = server.received
    assert [reads[step - 1] for step in range(1, STEPS + 1) if step % 10] == [0] * 90
    assert len(got.series("loss/train")) == STEPS
    assert list(got.series("lr/group0").values()) == pytest.approx([0.05] * STEPS)
    assert len(got.series("grad_norm/total")) == STEPS
    assert sorted(got.series("weight_norm/total")) == [1, *range(10, 101, 10)]
    assert w.tally().hook_errors == 0


def test_a_loop_of_slow_steps_is_fetched_more_often_than_its_due_steps(
    far_away: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "READ_S", 0.0)
    with StubServer() as server:
        model, optimizer, w = begin(server, tmp_path)
        train(w, model, optimizer)
        assert far_away == [1] * STEPS
        w.close()
        assert len(server.received.series("loss/train")) == STEPS


def test_a_call_costs_after_a_hundred_thousand_steps_what_it_cost_at_first(tmp_path: Path) -> None:
    w: Any = watch(server="http://127.0.0.1:9", spool_dir=tmp_path)
    took: list[float] = []
    for step in range(1, 100_001):
        began = time.perf_counter()
        w.log({"mine/a": 1.0 / step, "mine/b": float(step)})
        w.step(loss=1.0 / step, tokens=100)
        took.append(time.perf_counter() - began)
    w.close(timeout_s=1.0)
    # Medians: other work on the machine makes some calls slow, not half of them.
    first, last = sorted(took[1_000:11_000])[5_000], sorted(took[-10_000:])[5_000]
    assert last < 2 * first
    assert last < 0.002
    tally = w.tally()
    assert tally.adds_up()
    assert tally.hook_errors == 0
