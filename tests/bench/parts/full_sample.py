"""One full sample of weights, gradients, update and rotation, and floors for it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.bench.parts.gpt import VOCAB, Loop
from tests.bench.parts.memory import peak_mib
from tests.bench.parts.timing import Spent, around, interleaved
from trainer_hooks import Probe
from trainer_hooks.signals.base import Signal, Subject
from trainer_hooks.signals.gradient import Gradient
from trainer_hooks.signals.groups import named_parameters
from trainer_hooks.signals.probe import ProbeSignal
from trainer_hooks.signals.update import Update
from trainer_hooks.signals.weights import Weights

PROBE_ROWS, PROBE_LENGTH = 64, 64
FORWARD_ROWS = (8, 16, 32, 64)
"""How many rows a plain forward pass may take at once: the fastest way is the floor."""


def make_probe(rows: int = PROBE_ROWS) -> Probe:
    """Random tokens, 64 to a row."""
    ids = torch.randint(VOCAB, (rows, PROBE_LENGTH + 1))
    return Probe(ids[:, :-1], ids[:, 1:])


class Sample:
    """Acts round an optimizer step; each gives its own milliseconds, the step's left out."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.loop.step()
        self.loop.backward()
        optimizers = [self.loop.optimizer]
        subject = Subject(
            self.loop.model, optimizers, named_parameters(self.loop.model, optimizers)
        )
        self.signals: list[Signal] = [kind(subject) for kind in (Weights, Update, Gradient)]
        self.parameters = list(self.loop.model.parameters())
        self.copies = [p.detach().clone() for p in self.parameters]

    def _around(self, before: Callable[[], object], after: Callable[[], object]) -> Spent:
        return around(before, self.loop.optimizer.step, after)

    def ours(self) -> Spent:
        """What the signals do, and the one read of all their values."""
        return self._around(self._ours_before, self._ours_after)

    def _ours_before(self) -> None:
        for signal in self.signals:
            signal.before_update(1)

    def _ours_after(self) -> None:
        for signal in self.signals:
            signal.after_update(1)
        found = [value for signal in self.signals for value in signal.measure(1).values()]
        torch.stack([value.double() for value in found if isinstance(value, torch.Tensor)]).tolist()

    @torch.no_grad()
    def floor(self) -> Spent:
        """Plain norms of weights, gradients and changes: no angle, no groups, no coverage."""
        return self._around(self._floor_before, self._floor_after)

    def _floor_before(self) -> None:
        torch._foreach_copy_(self.copies, [p.detach() for p in self.parameters])
        self.grad_norms = torch._foreach_norm([p.grad for p in self.parameters])

    def _floor_after(self) -> None:
        now = [p.detach() for p in self.parameters]
        weights = torch._foreach_norm(now)
        for p, copy in zip(now, self.copies, strict=True):
            copy.sub_(p)
        changes = torch._foreach_norm(self.copies)
        torch.stack([*weights, *self.grad_norms, *changes]).tolist()

    def naive(self) -> Spent:
        """The same as ours with a read for every tensor."""
        return self._around(self._naive_before, self._naive_after)

    def _naive_before(self) -> None:
        self.before = [p.detach().clone() for p in self.parameters]
        for p in self.parameters:
            p.grad.norm().item()

    @torch.no_grad()
    def _naive_after(self) -> None:
        for p, old in zip(self.parameters, self.before, strict=True):
            p.norm().item()
            ((p - old).norm() / old.norm()).item()
            (p != old).sum().item()
            (p / p.norm() - old / old.norm()).norm().item()
        self.before = []


def probes(rounds: int) -> dict[str, float]:
    """A probe of 4,096 tokens against one forward pass over it, and the memory it takes."""
    model, probe = Loop().model, make_probe()
    signal = ProbeSignal(Subject(model, [], [], {"probe": probe}))

    def forward(rows: int) -> None:
        for start in range(0, PROBE_ROWS, rows):
            model(probe.inputs_BT[start : start + rows])

    def ours() -> None:
        signal.measure(1)

    plain = torch.no_grad()(forward)
    peak = peak_mib(ours)
    acts = {f"forward_{rows}": lambda rows=rows: plain(rows) for rows in FORWARD_ROWS}
    found = interleaved(acts | {"probe": ours}, rounds)
    floor = min((found[name] for name in acts), key=lambda one: one.cpu_ms)
    return {
        "probe_ms": found["probe"].wall_ms,
        "forward_ms": floor.wall_ms,
        "probe_over_forward": found["probe"].wall_ms / floor.wall_ms,
        "probe_over_forward_cpu": found["probe"].cpu_ms / floor.cpu_ms,
        "probe_peak_mib": peak,
    }
