"""Parameters keep their names under torch's own wrappers, which need a process group to be made."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.processes import run_processes

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

WRAPPED = """
    import warnings
    from torch import nn
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
    from torch.nn.parallel import DistributedDataParallel as DDP
    from trainer_hooks.signals.groups import named_parameters
    warnings.simplefilter("ignore")

    def model():
        return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def fsdp(inner):
        return FSDP(inner, device_id=torch.device("cpu"), use_orig_params=True)

    def compiled(inner):
        return torch.compile(inner, backend="eager")

    def blocks(wrap):
        return nn.Sequential(*(wrap(layer) for layer in model()))

    made = {
        "plain": model(),
        "compiled": compiled(model()),
        "ddp": DDP(model()),
        "ddp(compiled)": DDP(compiled(model())),
        "compiled(ddp)": compiled(DDP(model())),
        "checkpointed": blocks(checkpoint_wrapper),
        "fsdp1": fsdp(model()),
        "fsdp1 of blocks": fsdp(blocks(fsdp)),
        "compiled(fsdp1)": compiled(fsdp(model())),
        "fsdp1(checkpointed)": fsdp(blocks(checkpoint_wrapper)),
        "fsdp2": fully_shard(model()),
        "compiled blocks in ddp": DDP(blocks(compiled)),
        "own module": DDP(nn.ModuleDict({"module": nn.Linear(4, 4)})),
    }
    say(**{kind: [p.name for p in named_parameters(wrapped)] for kind, wrapped in made.items()})
"""


def test_names_are_those_of_the_plain_model_under_every_wrapper() -> None:
    (out,) = run_processes(WRAPPED, 1)
    names = json.loads(out.splitlines()[-1])
    assert names.pop("own module") == ["module.weight", "module.bias"]
    plain = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert len(names) == 12
    assert {kind: found for kind, found in names.items() if found != plain} == {}
