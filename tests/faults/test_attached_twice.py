"""A notebook's cell that is run again: the earlier watch ends, and nothing is measured twice."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import Received, StubServer
from trainer_hooks import watch
from trainer_hooks.loop import succession

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(60)]


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        yield stub


def made() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(w: Any, model: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        loss = model(torch.ones(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        w.step(loss=loss)


def hooks_of(optimizer: Any) -> int:
    return len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)


def of_run(received: Received, run: str) -> Received:
    return Received({key: batch for key, batch in received.batches.items() if key[0] == run})


def options(server: StubServer, folder: Path) -> dict[str, Any]:
    return {
        "server": server.url, "spool_dir": folder, "every": {"weights": 1},
        "overhead_budget": None,
    }  # fmt: skip


def test_the_same_model_attached_again_ends_the_first_run(
    server: StubServer, tmp_path: Path
) -> None:
    model, optimizer = made()
    first = watch(model, optimizer, **options(server, tmp_path))
    train(first, model, optimizer, 3)
    second = watch(model, optimizer, **options(server, tmp_path))
    assert hooks_of(optimizer) == 2
    train(second, model, optimizer, 4)
    first.step(loss=1.0)  # a stray call of the one that is over
    second.close()
    assert first.run != second.run
    ends = [of_run(server.received, w.run).records("run_end")[0] for w in (first, second)]
    assert [(end["status"], end["last_step"]) for end in ends] == [
        ("interrupted", 3), ("finished", 4),
    ]  # fmt: skip
    losses = [of_run(server.received, w.run).series("loss/train") for w in (first, second)]
    assert [sorted(found) for found in losses] == [[1, 2, 3], [1, 2, 3, 4]]
    assert second.tally().hook_errors == 0
    assert hooks_of(optimizer) == 0


def test_a_new_optimizer_for_the_same_model_is_the_same_run_over(
    server: StubServer, tmp_path: Path
) -> None:
    model, optimizer = made()
    first = watch(model, optimizer, **options(server, tmp_path))
    train(first, model, optimizer, 1)
    second = watch(model, torch.optim.AdamW(model.parameters()), **options(server, tmp_path))
    assert hooks_of(optimizer) == 0
    second.close()
    assert of_run(server.received, first.run).records("run_end")


@pytest.mark.parametrize("is_typed", [False, True])
def test_a_new_model_under_the_same_name_ends_the_first_in_an_interactive_session(
    server: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_typed: bool
) -> None:
    if is_typed:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        monkeypatch.setattr(succession, "is_interactive", lambda: False)
    started = []
    for _ in range(2):
        model, optimizer = made()
        w = watch(model, optimizer, name="cell", **options(server, tmp_path))
        train(w, model, optimizer, 2)
        started.append((w, model, optimizer))
    ended = of_run(server.received, started[0][0].run).records("run_end")
    assert [end["status"] for end in ended] == (["interrupted"] if is_typed else [])
    for w, *_ in started:
        w.close()


def test_two_models_side_by_side_are_two_runs(server: StubServer, tmp_path: Path) -> None:
    pairs = [made(), made()]
    both = [watch(m, o, **options(server, tmp_path)) for m, o in pairs]
    for w, (model, optimizer) in zip(both, pairs, strict=True):
        train(w, model, optimizer, 2)
    for w in both:
        w.close()
    ends = server.received.records("run_end")
    assert [end["status"] for end in ends] == ["finished", "finished"]


def test_what_was_watched_is_not_kept_alive(server: StubServer, tmp_path: Path) -> None:
    model, optimizer = made()
    w = watch(model, optimizer, **options(server, tmp_path))
    w.close()
    gone = weakref.ref(model)
    del w, model, optimizer
    gc.collect()
    assert gone() is None
    assert succession._live == []
