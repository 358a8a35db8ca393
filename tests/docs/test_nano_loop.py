"""The longer loop of the quick start runs as it stands."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
QUICKSTART = Path(__file__).parents[2] / "docs" / "quickstart.md"


class Nano(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.wte = torch.nn.Embedding(16, 8)
        self.lm_head = torch.nn.Linear(8, 16)

    def forward(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        logits = self.lm_head(self.wte(inputs))
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def test_the_nano_loop_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", QUICKSTART.read_text(), re.DOTALL)
    (loop,) = [block for block in blocks if "max_iters" in block]
    model = Nano()
    with StubServer() as server:
        options = {"server": server.url, "spool_dir": tmp_path, "every": {"weights": 2}}

        def begin(*args: Any, **given: Any) -> Any:
            return watch(*args, **given, **options)

        names = {
            "torch": torch, "watch": begin, "model": model, "ctx": nullcontext(),
            "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-2),
            "scaler": torch.amp.GradScaler("cpu"), "max_iters": 4, "iter_num": 0,
            "gradient_accumulation_steps": 2, "grad_clip": 1.0, "eval_interval": 2,
            "get_batch": lambda split: (torch.randint(16, (2, 4)), torch.randint(16, (2, 4))),
            "estimate_loss": lambda: {"val": 2.5}, "out_dir": str(tmp_path),
        }  # fmt: skip
        exec(loop, names)  # noqa: S102 - our own document
    got = server.received
    assert sorted(got.series("loss/train")) == [1, 2, 3, 4]
    assert got.series("tokens_seen")[4] == 64
    assert got.series("loss/heldout") == {2: 2.5, 4: 2.5}
    assert sorted(got.series("loss_scale")) == [1, 2, 3, 4]
    assert torch.load(tmp_path / "ckpt.pt", weights_only=True)["watch"]["step"] == 4
