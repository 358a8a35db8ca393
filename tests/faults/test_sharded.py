"""Several processes on gloo: norms of models in shards, replicas, and hooks on some ranks only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.processes import run_processes
from tests.fixtures.stub_server import Received, StubServer

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

SHARDED = """
    import time
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from trainer_hooks import watch
    from trainer_hooks.loop.together import Together
    from trainer_hooks.signals.base import NamedParameter, Subject
    from trainer_hooks.signals.weights import Weights

    collectives = []
    all_reduce = dist.all_reduce
    def counted(*args, **kwargs):
        collectives.append(1)
        return all_reduce(*args, **kwargs)
    dist.all_reduce = counted

    def train(run, mesh, steps, hooked, budget):
        model = torch.nn.Linear(8, 8, bias=False)
        torch.nn.init.ones_(model.weight)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        w = None
        if hooked:
            w = watch(model, optimizer, run=run, server=sys.argv[1], spool_dir=sys.argv[2],
                      every={"weights": 4}, overhead_budget=budget)
        counts = []
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            model(torch.ones(1, 8)).sum().mul(0).backward()
            time.sleep(0.002 * rank)
            optimizer.step()
            before = len(collectives)
            if w is not None:
                w.step(loss=1.0)
            counts.append(len(collectives) - before)
        if w is not None:
            w.close()
        return counts

    def norm_of_eight_ones(mesh):
        whole = distribute_tensor(torch.ones(8), mesh, [Replicate(), Shard(0)])
        signal = Weights(Subject(None, [], [NamedParameter("w", "other", whole)], {}, world))
        (sums,), _ = Together(lambda reason: None).add([signal.sums(1)], [1.0])
        return float(signal.conclude(sums)["weight_norm/total"]), float(whole.to_local().norm())

    meshes = {
        f"{r}x{s}": init_device_mesh("cpu", (r, s), mesh_dim_names=(f"r{r}", f"s{s}"))
        for r, s in ((4, 1), (2, 2), (1, 4))
    }
    flat = init_device_mesh("cpu", (world,))
    say(
        norms={shape: norm_of_eight_ones(mesh) for shape, mesh in meshes.items()},
        shards=train("shards", flat, 13, True, None),
        hybrid=train("hybrid", meshes["2x2"], 13, True, None),
        clocks=train("clocks", flat, 30, True, 0.000001),
        first=train("first", flat, 26, rank == 0, None),
    )
"""


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Received, list[dict[str, Any]]]:
    """What four processes found, and what the server got of their runs."""
    with StubServer() as server:
        spool = str(tmp_path_factory.mktemp("spool"))
        outputs = run_processes(SHARDED, 4, server.url, spool)
    return server.received, [json.loads(out.splitlines()[-1]) for out in outputs]


def of_run(received: Received, run: str) -> Received:
    return Received({key: batch for key, batch in received.batches.items() if key[0] == run})


@pytest.mark.parametrize(("shape", "local"), [("4x1", 8**0.5), ("2x2", 2.0), ("1x4", 2**0.5)])
def test_eight_ones_have_their_norm_however_they_are_cut(
    four: tuple[Received, list[dict[str, Any]]], shape: str, local: float
) -> None:
    for said in four[1]:
        assert said["norms"][shape] == pytest.approx([2.828427, local], abs=1e-6)


@pytest.mark.parametrize("run", ["shards", "hybrid"])
def test_a_sharded_norm_is_that_of_the_whole_not_of_a_shard_or_of_all_replicas(
    four: tuple[Received, list[dict[str, Any]]], run: str
) -> None:
    got, steps = of_run(four[0], run), [3, 4, 8, 12]
    assert got.series("weight_norm/total") == pytest.approx(dict.fromkeys(steps, 8.0))
    assert got.series("weight_rms/other") == pytest.approx(dict.fromkeys(steps, 1.0))
    assert got.series("grad_norm/total") == dict.fromkeys(steps, 0.0)
    assert got.series("update_coverage/total") == dict.fromkeys(steps, 0.0)
    assert got.series("effective_lr/other") == dict.fromkeys(steps, 0.0)
    for said in four[1]:
        assert said[run] == [1 if step in steps else 0 for step in range(1, 14)]


def test_what_is_due_is_agreed_where_ranks_have_different_clocks(
    four: tuple[Received, list[dict[str, Any]]],
) -> None:
    counts = [said["clocks"] for said in four[1]]
    assert counts == [counts[0]] * 4
    # The first costs are known at the second sample, and agreed on in the third one's collective.
    assert [step for step, n in enumerate(counts[0], 1) if n][:3] == [3, 4, 8]
    assert sum(counts[0][16:]) == 0


def test_hooks_on_the_first_rank_only_start_no_collective_and_hang_nobody(
    four: tuple[Received, list[dict[str, Any]]],
) -> None:
    assert [sum(said["first"]) for said in four[1]] == [0] * 4
    got = of_run(four[0], "first")
    assert len(got.series("loss/train")) == 26
    names = {key for _, key, _ in got.values()}
    assert not any(name.startswith(("weight_norm", "grad_norm", "update_")) for name in names)
    assert any("not every process" in event["text"] for event in got.records("event"))


STEPPING = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from trainer_hooks import Probe, watch
    server, spool, is_sharded = sys.argv[1:4]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(16, 12), torch.nn.Linear(12, 16))
    if is_sharded == "yes":
        fully_shard(model[1], mesh=init_device_mesh("cpu", (world,)))
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ids = torch.arange(16).view(2, 8)
    w = watch(model, optimizer, server=server, spool_dir=spool, every={"weights": 4, "probe": 4},
              overhead_budget=None, probe=Probe(ids, ids))
    for step in range(1, 9):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        w.step(loss=loss, grad_norm=norm)
    w.close()
"""
ASKED = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from trainer_hooks import PromptSet, watch
    from trainer_hooks.answers.prompts import ByteTokenizer, Decoding, Prompt
    server, spool = sys.argv[1:3]
    model = torch.nn.Sequential(torch.nn.Embedding(300, 12), torch.nn.Linear(12, 300))
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ids = torch.arange(16).view(2, 8)
    prompts = PromptSet((Prompt("a", "a"),), ByteTokenizer(), (Decoding(max_tokens=2),))
    w = watch(model, optimizer, server=server, spool_dir=spool, prompts=prompts,
              every={"answers": 2}, answers_share=None)
    for step in range(1, 5):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        w.step(loss=1.0)
    w.close()
"""


def test_a_model_in_shards_is_not_asked_by_one_process_and_hangs_nobody(tmp_path: Path) -> None:
    with StubServer() as server:
        run_processes(ASKED, 2, server.url, str(tmp_path))
    got = server.received
    assert len(got.series("loss/train")) == 4
    assert got.records("answer") == []
    assert any("the model is in parts" in event["text"] for event in got.records("event"))


SIGNALS = ("weight_norm", "update_ratio", "effective_lr", "update_coverage", "loss", "grad_norm")


def test_shards_give_all_signals_that_the_whole_model_gives(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []
    for world, is_sharded in ((1, "no"), (2, "yes")):
        with StubServer() as server:
            run_processes(STEPPING, world, server.url, str(tmp_path / str(world)), is_sharded)
        found.append({
            f"{key}@{step}": cells[0]
            for (_, key, step), cells in server.received.values().items()
            if key.split("/")[0] in SIGNALS and step in (4, 8)
        })  # fmt: skip
    whole, parts = found
    assert parts.keys() == whole.keys()
    for key in whole:
        assert parts[key] == pytest.approx(whole[key], rel=1e-3), key


RANKED = """
import sys
from trainer_hooks import watch
w = watch(name="four", server=sys.argv[1], spool_dir=sys.argv[2])
for step in range(1, 11):
    w.step(loss=float(step))
w.log_heldout(2.0, step=4)
w.close()
"""


def test_four_ranks_are_one_run(tmp_path: Path) -> None:
    with StubServer() as server:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", RANKED, server.url, str(tmp_path)],
                env=os.environ | {"WORLD_SIZE": "4", "RANK": str(rank)},
            )
            for rank in range(4)
        ]
        assert [process.wait(60) for process in started] == [0] * 4
    got = server.received
    assert len({run for run, *_ in got.batches}) == 1
    assert len({source for _, _, source, _ in got.batches}) == 1
    assert got.series("loss/train") == {step: float(step) for step in range(1, 11)}
    assert got.series("loss/heldout") == {4: 2.0}
