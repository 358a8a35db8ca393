"""What ``watch`` may be told."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from trainer_hooks.attention import Attention
from trainer_hooks.feed.settings import Feed
from trainer_hooks.loop.allowance import ANSWERS_LIMIT_S, ANSWERS_SHARE
from trainer_hooks.loop.facts import count_parameters, gpu_names
from trainer_hooks.loop.ranks import DEFAULT_EVERY_STEPS, RankTeam, holds_replica, replicated
from trainer_hooks.machine.flops import flops_per_token
from trainer_hooks.post.beside import Plan
from trainer_hooks.schedule import DEFAULT_BUDGET, DEFAULT_EVERY
from trainer_hooks.spool import CAP_BYTES
from trainer_hooks.wire import Asleep, RunKind, RunStart, Scalar

DEFAULT_SERVER = "http://127.0.0.1:8765"
DEVICE_READ_STEPS = 10
TRAIN_BATCH_STEPS = 50


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a watch; each is described in ``docs/quickstart.md``."""

    name: str = "run"
    server: str | None = None
    token: str | None = None
    run: str | None = None
    state_file: str | os.PathLike[str] | None = None
    spool_dir: str | os.PathLike[str] | None = None
    spool_bytes: int = CAP_BYTES
    proxies: bool = True
    ping_url: str | None = None
    probe: Any = None
    prompts: Any = None
    answers_share: float | None = ANSWERS_SHARE
    answers_limit_s: float | None = ANSWERS_LIMIT_S
    every: Mapping[str, int] = field(default_factory=dict)
    overhead_budget: float | None = DEFAULT_BUDGET
    kind: RunKind = "pretrain"
    tags: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)
    dataset_hash: str | None = None
    planned_steps: int | None = None
    planned_tokens: int | None = None
    sequence_length: int | None = None
    params_active: int | None = None
    price_per_hour: float | None = None
    currency: str = "USD"
    zone: str = "UTC"
    declared_epochs: float = 1.0
    feed: Feed | None = None
    clip_norm: float | None = None
    flops_per_token: float | None = None
    peak_tflops: float | None = None
    replicas: bool | None = None
    layers: Sequence[str] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    slices: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    attention: Attention | None = None
    scaler: Any = None

    @property
    def address(self) -> str:
        """The server: argument, environment, or this machine."""
        return self.server or os.environ.get("WATCHKEEPER_SERVER") or DEFAULT_SERVER

    @property
    def ingest_token(self) -> str | None:
        """The token: argument or environment."""
        return self.token or os.environ.get("WATCHKEEPER_INGEST_TOKEN") or None

    def intervals(self) -> dict[str, int]:
        """Cadence -> steps; what is not named keeps its default."""
        own = {"step": DEVICE_READ_STEPS, "train_batch": TRAIN_BATCH_STEPS}
        return DEFAULT_EVERY | own | dict(self.every)

    def extras(self) -> dict[str, Any]:
        """What signals are given beside the model and its optimizers."""
        return {
            "probe": self.probe,
            "layers": tuple(self.layers),
            "attention": self.attention,
            "groups": dict(self.groups),
            "slices": dict(self.slices),
        }

    def facts(self, model: Any, optimizer: Any, at: float) -> RunStart:
        """Facts that are known at once; the rest is found out later, off this thread."""
        return RunStart(
            name=self.name,
            at=at,
            run_kind=self.kind,
            tags=list(self.tags),
            config={str(key): _scalar(value) for key, value in self.config.items()},
            world_size=int(os.environ.get("WORLD_SIZE") or 1),
            seeds=dict(self.seeds),
            dataset_hash=self.dataset_hash,
            planned_steps=self.planned_steps,
            planned_tokens=self.planned_tokens,
            sequence_length=self.sequence_length,
            params_active=self.params_active,
            params_total=count_parameters(model),
            price_per_hour=self.price_per_hour,
            currency=self.currency,
            zone=self.zone,
            declared_epochs=self.declared_epochs,
            optimizer=None if optimizer is None else type(optimizer).__name__,
        )

    def team(self, model: Any, give_up: Callable[[str], None]) -> RankTeam | None:
        """The comparison with other ranks; None where there are none, or it is switched off."""
        every = self.every.get("ranks", DEFAULT_EVERY_STEPS)
        alike = holds_replica(model) if self.replicas is None else self.replicas
        tensors = replicated(model) if alike else []
        team = RankTeam(tensors, every, give_up=give_up)
        return None if team.is_off else team

    def beside(self, model: Any, folder: Path) -> Plan:
        """What the figures made beside the training thread need to know."""
        flops = self.flops_per_token
        if flops is None:
            flops = flops_per_token(model, self.params_active)
        return Plan(
            feed=self.feed or Feed(),
            folder=folder,
            planned_steps=self.planned_steps,
            clip_norm=self.clip_norm,
            flops_per_token=flops,
            peak_tflops=self.peak_tflops,
            cards=tuple(gpu_names()),
            world_size=int(os.environ.get("WORLD_SIZE") or 1),
        )

    def asleep(self) -> list[Asleep]:
        """What cannot work for want of a setting, with the line that wakes it."""
        found = []
        if self.price_per_hour is None:
            wake = "watch(..., price_per_hour=2.10)"
            found.append(Asleep("cost", "the price of an hour", wake))
        if self.planned_steps is None and self.planned_tokens is None:
            wake = "watch(..., planned_steps=20_000)"
            found.append(Asleep("plan and finish date", "how long the run shall be", wake))
        if self.prompts is None or not self.every.get("answers"):
            missing = "prompts" if self.prompts is None else "an interval"
            wake = 'watch(..., prompts=PromptSet(...), every={"answers": 1000})'
            found.append(Asleep("sampled answers", missing, wake))
        return found


def _scalar(value: Any) -> Scalar:
    """A configuration value as it travels: what is no scalar is shown as text."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)[:500]


class WatchOptions(TypedDict, total=False):
    """The same settings as keywords of ``watch``, for type checkers and editors."""

    name: str
    server: str | None
    token: str | None
    run: str | None
    state_file: str | os.PathLike[str] | None
    spool_dir: str | os.PathLike[str] | None
    spool_bytes: int
    proxies: bool
    ping_url: str | None
    probe: Any
    prompts: Any
    answers_share: float | None
    answers_limit_s: float | None
    every: Mapping[str, int]
    overhead_budget: float | None
    kind: RunKind
    tags: Sequence[str]
    config: Mapping[str, Any]
    seeds: Mapping[str, int]
    dataset_hash: str | None
    planned_steps: int | None
    planned_tokens: int | None
    sequence_length: int | None
    params_active: int | None
    price_per_hour: float | None
    currency: str
    zone: str
    declared_epochs: float
    feed: Feed | None
    clip_norm: float | None
    flops_per_token: float | None
    peak_tflops: float | None
    replicas: bool | None
    layers: Sequence[str]
    groups: Mapping[str, str]
    slices: Mapping[str, Mapping[str, tuple[int, int]]]
    attention: Attention | None
    scaler: Any
