"""Losses with hooks are those without, bit for bit, in every kind of loop; few reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.processes import run_processes
from tests.fixtures.stub_server import StubServer
from trainer_hooks import Probe, watch

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
STEPS = 12
IDS = torch.arange(64).view(4, 16) % 24


def build() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Embedding(24, 16),
        torch.nn.Dropout(0.2),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 24),
    )


def loss_of(model: Any, ids: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


def plain(model: Any, optimizer: Any, w: Any) -> list[str]:
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, IDS)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        w.step(loss=loss, grad_norm=norm)
        losses.append(loss.item().hex())
    return losses


def accumulated(model: Any, optimizer: Any, w: Any) -> list[str]:
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        for row in IDS:
            loss = loss_of(model, row[None])
            (loss / len(IDS)).backward()
            w.micro(loss, row.numel())
            losses.append(loss.item().hex())
        optimizer.step()
        w.step()
    return losses


def mixed(model: Any, optimizer: Any, w: Any) -> list[str]:
    losses = []
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, IDS)
        factor = float("inf") if step == 5 else 1.0
        scaler.scale(loss * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        w.step(loss=loss)
        losses.append(loss.item().hex())
    return losses


def compiled(model: Any, optimizer: Any, w: Any) -> list[str]:
    return plain(torch.compile(model, backend="aot_eager"), optimizer, w)


class NoWatch:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **given: None


@pytest.mark.parametrize("loop", [plain, accumulated, mixed, compiled])
def test_losses_are_the_same_bit_for_bit(loop: Callable[..., list[str]], tmp_path: Path) -> None:
    torch.set_num_threads(1)
    found = []
    for watched in (False, True):
        torch.compiler.reset()
        model = build()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        with StubServer() if watched else nullcontext() as server:
            w: Any = NoWatch()
            if server is not None:
                w = watch(
                    model, optimizer, server=server.url, spool_dir=tmp_path,
                    every={"weights": 2, "probe": 3}, probe=Probe(IDS, IDS), overhead_budget=None,
                )  # fmt: skip
            torch.manual_seed(9)
            found.append(loop(model, optimizer, w))
            states = torch.get_rng_state().tolist()
            found[-1].append(str(hash(tuple(states))))
            w.close()
        if server is not None:
            assert w.tally().hook_errors == 0
            assert 2 in server.received.series("update_ratio/total")
            assert 3 in server.received.series("entropy/probe")
    assert found[0] == found[1]


REPLICATED = """
    from trainer_hooks import Probe, watch
    from torch.nn.parallel import DistributedDataParallel
    losses = {}
    for watched in (False, True):
        torch.manual_seed(3)
        model = torch.nn.Sequential(
            torch.nn.Embedding(24, 16), torch.nn.Dropout(0.2), torch.nn.BatchNorm1d(16),
            torch.nn.Linear(16, 24))
        model = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        ids = torch.arange(16) % 24
        if watched:
            w = watch(model, optimizer, server=sys.argv[1], spool_dir=sys.argv[2],
                      every={"weights": 2, "probe": 3, "ranks": 4}, overhead_budget=None,
                      probe=Probe(ids[None], ids[None],
                                  forward=lambda m, i: m(i.reshape(-1))[None]))
        torch.manual_seed(9 + rank)
        found = []
        for step in range(12):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(ids + rank), ids + rank)
            loss.backward()
            optimizer.step()
            if watched:
                w.step(loss=loss)
            found.append(loss.item().hex())
        if watched:
            w.close()
        losses[str(watched)] = found
    say(**losses)
"""


def test_losses_of_two_replicas_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    with StubServer() as server:
        outputs = run_processes(REPLICATED, 2, server.url, str(tmp_path))
    for out in outputs:
        losses = json.loads(out.splitlines()[-1])
        assert losses["True"] == losses["False"]
    assert 3 in server.received.series("loss/probe")
    assert 2 in server.received.series("weight_norm/total")


def test_a_hundred_steps_read_a_scalar_ten_times_at_most(tmp_path: Path) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    reads: list[str] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if "_local_scalar_dense" in str(function):
                reads.append(str(function))
            return function(*args, **(kwargs or {}))

    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with StubServer() as server:
        w = watch(
            model, optimizer, server=server.url, spool_dir=tmp_path, every={"weights": 10},
            overhead_budget=None,
        )  # fmt: skip
        for _ in range(100):
            optimizer.zero_grad()
            loss = loss_of(model, IDS)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with Counting():
                optimizer.step()
                w.step(loss=loss, grad_norm=norm)
        w.close()
    assert len(server.received.series("loss/train")) == 100
    assert len(server.received.series("weight_norm/total")) == 11
    assert len(reads) <= 10, reads[:20]
