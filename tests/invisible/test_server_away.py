"""A toy run whose server is away, comes, goes, or has no name: losses are those without hooks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_client_server_away import free_port
from tests.fixtures.stub_server import StubServer
from trainer_hooks import Probe, watch
from trainer_hooks.spool import find_leftovers

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
STEPS = 200


def train(begin: Callable[[Any, Any], Any], at_step: Callable[[int], object]) -> list[float]:
    """200 steps of a linear model with dropout; the losses."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    w = begin(model, optimizer)
    losses = []
    for step in range(1, STEPS + 1):
        at_step(step)
        loss = (model(torch.randn(4, 8)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if w is not None:
            w.step(loss=loss, tokens=4)
            time.sleep(0.005)
    if w is not None:
        w.close()
    return losses


def watched(url: str, folder: Path) -> tuple[Callable[[Any, Any], Any], list[Any]]:
    made: list[Any] = []
    probe = Probe(torch.ones(2, 8), torch.zeros(2, dtype=torch.long))

    def begin(model: Any, optimizer: Any) -> Any:
        w = watch(
            model, optimizer, server=url, spool_dir=folder, run="toy", probe=probe,
            every={"weights": 20, "probe": 20}, overhead_budget=None,
        )  # fmt: skip
        made.append(w)
        return w

    return begin, made


def plain() -> list[float]:
    return train(lambda model, optimizer: None, lambda step: None)


def test_a_server_that_opens_at_step_120_has_all_200_steps_once(tmp_path: Path) -> None:
    port = free_port()
    servers: list[StubServer] = []

    def at_step(step: int) -> None:
        if step == 120:
            servers.append(StubServer(port).__enter__())

    begin, made = watched(f"http://127.0.0.1:{port}", tmp_path)
    try:
        losses = train(begin, at_step)
    finally:
        servers[0].__exit__()
    assert losses == plain()
    # series() fails where a step came twice; values as they were, bit for bit.
    assert servers[0].received.series("loss/train") == dict(enumerate(losses, 1))
    tally = made[0].tally()
    assert (tally.dropped, tally.hook_errors, tally.stored) == (0, 0, tally.produced)
    assert find_leftovers(tmp_path) == []


def test_up_down_up_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    port = free_port()
    servers = [StubServer(port).__enter__()]

    def at_step(step: int) -> None:
        if step == 60:
            servers[0].__exit__()
        if step == 140:
            servers.append(StubServer(port).__enter__())

    begin, made = watched(f"http://127.0.0.1:{port}", tmp_path)
    try:
        losses = train(begin, at_step)
    finally:
        servers[-1].__exit__()
    assert losses == plain()
    first, second = (server.received.series("loss/train") for server in servers)
    assert first
    assert second
    assert first | second == dict(enumerate(losses, 1))
    assert made[0].tally().dropped == 0


@pytest.mark.parametrize("url", ["http://no-such-host.invalid:8765", None])
def test_without_any_server_all_200_steps_lie_in_the_spool_for_the_next_process(
    tmp_path: Path, url: str | None
) -> None:
    from monitor.cli import main

    begin, made = watched(url or f"http://127.0.0.1:{free_port()}", tmp_path)
    losses = train(begin, lambda step: None)
    assert losses == plain()
    tally = made[0].tally()
    assert (tally.spooled, tally.dropped, tally.hook_errors) == (tally.produced, 0, 0)
    with StubServer() as server:
        given = ["sync", "--spool-dir", str(tmp_path), "--server", server.url]
        assert main(given) == 0
        assert server.received.series("loss/train") == dict(enumerate(losses, 1))
        assert server.received.records("heartbeat")[-1]["dropped"] == 0
