"""Every series the hooks can send is explained in ``docs/signals.md`` below its family."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from trainer_hooks.signals import SIGNALS
from trainer_hooks.signals.base import NamedParameter, Signal, Subject
from trainer_hooks.wire import SeriesSpec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "signals.md"


def sections() -> dict[str, str]:
    """Text by heading."""
    parts = re.split(r"^## (\w+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def signal_specs() -> list[SeriesSpec]:
    """What all signals of the table say they fill, for a small model with a probe."""
    torch = pytest.importorskip("torch")
    from trainer_hooks.attention import Attention
    from trainer_hooks.probe import Probe

    layer = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in ("q_proj", "k_proj")})
    model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8), layer)
    tokens_BT = torch.zeros(2, 3, dtype=torch.long)
    subject = Subject(
        model=model,
        optimizers=[torch.optim.AdamW(model.parameters())],
        parameters=[NamedParameter(n, "other", p) for n, p in model.named_parameters()],
        extras={"probe": Probe(tokens_BT, tokens_BT), "attention": Attention(heads=2)},
    )
    found: list[SeriesSpec] = []
    for place in SIGNALS.values():
        module, _, name = place.partition(":")
        signal: Signal = getattr(import_module(module), name)(subject)
        found += signal.specs()
    return found


def undocumented(specs: list[SeriesSpec]) -> list[str]:
    """Keys whose name is not explained below the heading of their family."""
    texts = sections()
    return [s.key for s in specs if not re.search(rf"`{s.name}[/`@]", texts.get(s.family, ""))]


def test_each_series_of_the_watch_is_explained() -> None:
    from trainer_hooks.loop.series import SPECS, interval_spec

    assert not undocumented([*SPECS, interval_spec("weights")])


def test_each_series_made_beside_the_training_thread_is_explained(tmp_path: Path) -> None:
    from trainer_hooks.feed.meter import source_spec
    from trainer_hooks.feed.settings import Feed
    from trainer_hooks.post.beside import Beside, Plan

    beside = Beside(Plan(Feed(), tmp_path, clip_norm=1.0, flops_per_token=6.0, peak_tflops=1.0))
    assert not undocumented([*beside.specs(), source_spec("code")])


def test_each_series_of_the_ranks_is_explained() -> None:
    from trainer_hooks.loop.ranks import RankTeam

    assert not undocumented(RankTeam([]).specs())


@pytest.mark.torch
def test_each_series_of_the_training_batch_is_explained() -> None:
    pytest.importorskip("torch")
    from trainer_hooks.signals.training_batch import specs

    assert not undocumented(specs())


@pytest.mark.torch
def test_each_series_of_the_signals_is_explained() -> None:
    specs = signal_specs()
    assert len({spec.name for spec in specs}) > 15
    assert not undocumented(specs)
