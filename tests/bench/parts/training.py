"""How much slower training is with hooks: two loops side by side, step by step."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

from tests.bench.parts.full_sample import make_probe
from tests.bench.parts.gpt import Loop
from tests.bench.parts.timing import Spent, spent, trimmed
from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch

PROBE_ROWS = 32
WARM_STEPS = 3
TOKENS = 256


@dataclass
class Times:
    """What steps took: without hooks, with them, and with them where a sample was due."""

    plain: list[Spent] = field(default_factory=list)
    hooked: list[Spent] = field(default_factory=list)
    sampled: list[Spent] = field(default_factory=list)

    def overhead_pct(self, clock: str) -> float:
        """Sampled steps count in full; of all others the slowest twentieth is left out."""
        plain, hooked, sampled = (
            [getattr(one, clock) for one in times]
            for times in (self.plain, self.hooked, self.sampled)
        )
        steps = len(hooked) + len(sampled)
        took = trimmed(hooked) * len(hooked) + sum(sampled)
        return 100 * (took / (trimmed(plain) * steps) - 1)


def train(steps: int, plain_every: int, **options: Any) -> dict[str, Any]:
    """``steps`` with hooks from the very first one on, and a plain one beside every few of them.

    Args:
        plain_every: hooked steps to a plain one.
        options: of ``watch``, beyond the probe.
    """
    plain, hooked, times = Loop(), Loop(), Times()
    for _ in range(WARM_STEPS):
        plain.step()
        hooked.step()
    with tempfile.TemporaryDirectory() as folder, StubServer() as server:
        began_s = time.perf_counter()
        w: Any = watch(
            hooked.model, hooked.optimizer, server=server.url, spool_dir=folder,
            probe=make_probe(PROBE_ROWS), **options,
        )  # fmt: skip
        attach_ms = 1000 * (time.perf_counter() - began_s)
        for step in range(1, steps + 1):
            if step % plain_every == 0:
                times.plain.append(spent(plain.step))
            _hooked_step(hooked, w, step, times)
        hook_s = w.hook_s
        w.close()
        got = server.received
    intervals = {name: got.series(f"interval/{name}") for name in ("weights", "probe")}
    all_s = sum(one.wall_ms for one in times.hooked + times.sampled) / 1000
    return {
        "overhead_pct": times.overhead_pct("wall_ms"),
        "overhead_cpu_pct": times.overhead_pct("cpu_ms"),
        "hook_share_pct": 100 * hook_s / all_s,
        "attach_ms": attach_ms,
        "steps": steps,
        "plain_step_ms": statistics.median(one.wall_ms for one in times.plain),
        "full_samples": len(got.series("weight_norm/total")),
        "probes": len(got.series("loss/probe")),
        "intervals": {name: sorted(set(found.values())) for name, found in intervals.items()},
    }


def _hooked_step(loop: Loop, w: Any, step: int, times: Times) -> None:
    due = any(w._schedule.due(name, step) for name in ("weights", "probe"))
    took = spent(lambda: w.step(loss=loop.step(), tokens=TOKENS))
    (times.sampled if due else times.hooked).append(took)
