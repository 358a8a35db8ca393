"""Models whose parts do not add up by themselves: no wrong norms, nothing that waits for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.processes import run_processes
from tests.fixtures.stub_server import StubServer

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

CUT = """
    import warnings
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from trainer_hooks import Probe, PromptSet, watch
    from trainer_hooks.answers.prompts import ByteTokenizer, Decoding, Prompt
    warnings.simplefilter("ignore")
    server, spool, kind = sys.argv[1:4]

    class Half(torch.nn.Module):
        # A layer of which every rank has some columns, gathered in the forward pass.
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(300 // world, 12))
            self.weight.tensor_model_parallel = True

        def forward(self, x):
            parts = [torch.empty(*x.shape[:-1], 300 // world) for _ in range(world)]
            mine = x @ self.weight.T
            dist.all_gather(parts, mine.detach().contiguous())
            parts[rank] = mine
            return torch.cat(parts, -1)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(300, 12),
                                Half() if kind == "columns" else torch.nn.Linear(12, 300))
    if kind == "fsdp":
        model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ids = torch.arange(16).view(2, 8)
    prompts = PromptSet((Prompt("a", "a"),), ByteTokenizer(), (Decoding(max_tokens=2),))
    w = watch(model, optimizer, server=server, spool_dir=spool, prompts=prompts,
              probe=Probe(ids, ids), every={"weights": 1, "probe": 1, "answers": 2},
              answers_share=None, overhead_budget=None)
    for step in range(1, 7):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        w.step(loss=loss)
    w.close()
"""


@pytest.mark.parametrize(
    ("kind", "named"), [("fsdp", "FullyShardedDataParallel"), ("columns", "tensor parallelism")]
)
def test_what_would_need_all_ranks_sleeps_and_the_rest_is_measured(
    tmp_path: Path, kind: str, named: str
) -> None:
    with StubServer() as server:
        run_processes(CUT, 2, server.url, str(tmp_path), kind)
    got = server.received
    assert sorted(got.series("loss/train")) == [1, 2, 3, 4, 5, 6]
    assert set(got.series("lr/group0").values()) == {0.01}
    assert got.records("answer") == []
    names = {key for _, key, _ in got.values()}
    assert not [n for n in names if n.startswith(("weight", "grad", "update_r", "effective"))]
    assert not [n for n in names if n.endswith("/probe")]
    facts: dict[str, Any] = got.records("run_start")[0]
    asleep = {entry["what"]: entry["missing"] for entry in facts["asleep"]}
    for signal in ("weights", "update", "gradient", "probe"):
        assert named in asleep[signal]


def test_one_process_has_the_whole_of_what_it_wraps() -> None:
    import torch

    from trainer_hooks.loop.ranks import cut_by

    class FullyShardedDataParallel(torch.nn.Module):
        pass

    assert cut_by(FullyShardedDataParallel()) == ""
    assert cut_by(None) == ""
