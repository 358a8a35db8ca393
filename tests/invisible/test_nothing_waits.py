"""No signal waits for a device: checked without one, by what would have to wait for its values."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_hooks import Attention, Probe

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
nn = torch.nn

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from trainer_hooks.signals.attention import AttentionLogits  # noqa: E402
from trainer_hooks.signals.base import Signal, Subject  # noqa: E402
from trainer_hooks.signals.gradient import Gradient  # noqa: E402
from trainer_hooks.signals.groups import named_parameters  # noqa: E402
from trainer_hooks.signals.learning_rate import LearningRate  # noqa: E402
from trainer_hooks.signals.probe import ProbeSignal  # noqa: E402
from trainer_hooks.signals.update import Update  # noqa: E402
from trainer_hooks.signals.weights import Weights  # noqa: E402

WAITS = (
    "_local_scalar_dense", "nonzero", "masked_select", "unique", "equal.default", "is_nonzero",
    "bincount", "repeat_interleave.Tensor",
)  # fmt: skip


class Watching(TorchDispatchMode):  # type: ignore[misc]
    """Notes the operations that have to wait for the values of their operands."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(function)
        # A mask as an index: how many places it has is not known before it is looked at.
        is_masked = "index" in name and any(
            getattr(part, "dtype", None) is torch.bool
            for arg in args if isinstance(arg, (list, tuple)) for part in arg
        )  # fmt: skip
        if is_masked or any(wait in name for wait in WAITS):
            self.found.append(name)
        return function(*args, **(kwargs or {}))


class Model(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(16, 8)
        self.q_proj, self.k_proj = nn.Linear(8, 8), nn.Linear(8, 8)
        self.lm_head = nn.Linear(8, 16)

    def forward(self, ids_BT: Any) -> Any:
        x = self.emb(ids_BT)
        return self.lm_head(self.q_proj(x) + self.k_proj(x))


IDS = torch.arange(32).view(4, 8) % 16
TARGETS = IDS.clone()
TARGETS[:, ::3] = -100


def head_apart(model: Any, ids_BT: Any) -> Any:
    return model.emb(ids_BT), model.lm_head


@pytest.mark.parametrize("forward", [None, head_apart])
def test_the_probe_waits_for_nothing(forward: Any) -> None:
    probe = Probe(IDS, TARGETS, vocab=15 + 1, sources=["a", "b", "a", "b"], forward=forward)
    extras = {"probe": probe, "attention": Attention(heads=2, exact=True)}
    subject = Subject(Model(), [], [], extras)
    kinds = [ProbeSignal] if forward else [ProbeSignal, AttentionLogits]
    signals: list[Signal] = [kind(subject) for kind in kinds]
    for signal in signals:
        first = signal.measure(1)  # makes what it keeps for all later ones
        with Watching() as watching:
            second = signal.measure(2)
        assert watching.found == []
        assert first.keys() == second.keys()
        assert len(second) > 0


def test_the_check_sees_a_mask_and_a_read() -> None:
    values = torch.arange(4.0)
    with Watching() as watching:
        values[values > 1]
        values.sum().item()
    assert len(watching.found) == 2


def test_norms_updates_rotations_and_rates_wait_for_nothing() -> None:
    """On a device without memory nothing has a value: whatever asks for one fails."""
    model = Model().to("meta")
    rate = torch.tensor(0.1, device="meta")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = rate  # torch looks at the value it is made with
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    subject = Subject(
        model, [optimizer], named_parameters(model, [optimizer]),
        {"grad_norm": torch.empty((), device="meta"), "layers": ("q_proj",)},
    )  # fmt: skip
    signals = [kind(subject) for kind in (LearningRate, Update, Gradient, Weights)]
    found: dict[str, Any] = {}
    for step in (1, 2):
        for signal in signals:
            signal.before_update(step)
        for signal in signals:
            signal.after_update(step)
        for signal in signals:
            found |= signal.measure(step)
            signal.skipped(step)
    assert {"effective_lr/attn_q", "grad_norm/head", "update_coverage/total"} <= found.keys()
    assert all(value.device.type == "meta" and value.ndim == 0 for value in found.values())
