"""Loader workers of every start method, and copies of a watched model: neither is observed."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import Attention, Probe, watch

torch = pytest.importorskip("torch")
from tests.fixtures.logging_rows import LoggingRows  # noqa: E402

nn = torch.nn
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
IDS = torch.arange(16).view(2, 8)


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_that_hold_the_watch_end_and_send_nothing(
    server: StubServer, tmp_path: Path, method: str
) -> None:
    w: Any = watch(server=server.url, spool_dir=tmp_path)
    w.step(loss=1.0)  # the client runs before the loader starts
    loader = torch.utils.data.DataLoader(
        LoggingRows(w, 200), batch_size=2, num_workers=2, multiprocessing_context=method, timeout=60
    )
    batches = list(loader)
    assert sorted(int(v) for batch in batches for v in batch) == list(range(200))
    assert len(batches) == 100
    w.close()
    got = server.received
    assert list(got.series("loss/train")) == [1]
    assert got.series("from_a_worker") == {}
    assert got.records("event") == []
    assert len({batch["source"] for batch in got.batches.values()}) == 1


def test_forked_workers_take_no_lock_that_a_thread_holds(
    server: StubServer, tmp_path: Path
) -> None:
    w: Any = watch(server=server.url, spool_dir=tmp_path)
    w.step(loss=1.0)
    client = w._link.client
    end = time.monotonic() + 30.0
    while client._outbox is None:  # the sender's thread makes it
        assert time.monotonic() < end
        time.sleep(0.01)
    locks = [client.account.lock, client._outbox.spool._lock]
    loader = torch.utils.data.DataLoader(
        LoggingRows(w, 200), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=30
    )
    began = time.monotonic()
    for lock in locks:
        lock.acquire()
    try:
        count = sum(1 for _ in loader)
    finally:
        for lock in locks:
            lock.release()
    assert count == 100
    assert time.monotonic() - began < 5
    w.close()


class Model(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(16, 4)
        self.q_proj, self.k_proj = nn.Linear(4, 4), nn.Linear(4, 4)
        self.lm_head = nn.Linear(4, 16)

    def forward(self, ids_BT: Any) -> Any:
        x = self.emb(ids_BT)
        return self.lm_head(self.q_proj(x) + self.k_proj(x))


def one_step(model: Any, optimizer: Any) -> Any:
    loss = nn.functional.cross_entropy(model(IDS).flatten(0, 1), IDS.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("make", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_a_copy_of_a_watched_model_trains_unobserved(
    server: StubServer, tmp_path: Path, make: Any
) -> None:
    """As an average of the weights is kept: copied with the hooks on, then changed by itself."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    w: Any = watch(
        model, optimizer, server=server.url, spool_dir=tmp_path, probe=Probe(IDS, IDS),
        attention=Attention(heads=1), every={"weights": 1, "probe": 1}, overhead_budget=None,
    )  # fmt: skip
    twin = make(model)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )
    autocast = next(s for s in w._instruments._signals if s.name == "probe")._autocast
    for _ in range(3):
        one_step(twin, torch.optim.SGD(twin.parameters(), lr=1.0))
    assert not autocast.has_seen  # only the copy ran forward
    w.step(loss=one_step(model, optimizer))
    norm = torch.cat([p.detach().flatten() for p in model.parameters()]).norm().item()
    for _ in range(3):
        one_step(twin, torch.optim.SGD(twin.parameters(), lr=1.0))
    w.close()
    got = server.received
    assert list(got.series("loss/train")) == [1]
    assert got.series("weight_norm/total") == {1: pytest.approx(norm, rel=1e-5)}
    assert w.tally().hook_errors == 0
