"""What the hooks cost a training thread, against floors measured in the same run.

``python -m tests.bench.hooks [--peers] [--steps 400]``. The last line is JSON. Ratios travel
between machines; milliseconds do not, and mean little on a machine that does other work (``load``).
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.bench.parts import peers
from tests.bench.parts.gpt import VOCAB, Loop
from tests.bench.parts.peers import interleaved
from tests.faults.test_client_server_away import black_hole, free_port
from tests.fixtures.stub_server import StubServer
from trainer_hooks import Probe, watch
from trainer_hooks.signals.base import Signal, Subject
from trainer_hooks.signals.gradient import Gradient
from trainer_hooks.signals.groups import named_parameters
from trainer_hooks.signals.probe import ProbeSignal
from trainer_hooks.signals.update import Update
from trainer_hooks.signals.weights import Weights

VALUES = 300
CALLS = 400
PAUSE_S = 0.002
"""Between calls, as in a loop that also trains."""
PROBE_ROWS = 64
ROUNDS = 9


def measure_calls(call: Callable[[int], object], calls: int = CALLS) -> tuple[float, float]:
    """Median and p99 of a call, in microseconds."""
    took = []
    for step in range(1, calls + 1):
        began = time.perf_counter()
        call(step)
        took.append(1e6 * (time.perf_counter() - began))
        time.sleep(PAUSE_S)
    return statistics.median(took), sorted(took)[int(len(took) * 0.99)]


def measure_watch(url: str, values: dict[str, float]) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        w: Any = watch(server=url, spool_dir=folder)

        def call(step: int) -> None:
            w.log(values)
            w.step(loss=1.0 / step, tokens=1000)

        found = measure_calls(call)
        w.close(timeout_s=1.0)
        return found


def step_calls(values: dict[str, float]) -> dict[str, float]:
    """``step()`` with 300 floats, the server up, dead and mute; a bare queue is the floor."""
    bare: queue.SimpleQueue[dict[str, float]] = queue.SimpleQueue()
    floor, _ = measure_calls(lambda _step: bare.put(dict(values)))
    with StubServer() as server:
        up, up_p99 = measure_watch(server.url, values)
    _, dead_p99 = measure_watch(f"http://127.0.0.1:{free_port()}", values)
    with black_hole() as url:
        _, mute_p99 = measure_watch(url, values)
    return {
        "step_call_us": up,
        "queue_floor_us": floor,
        "step_p99_us": up_p99,
        "step_p99_us_dead_server": dead_p99,
        "step_p99_us_mute_server": mute_p99,
    }


class Sample:
    """One full sample of weights, gradients, update and rotation, without the step between."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        optimizers = [loop.optimizer]
        subject = Subject(loop.model, optimizers, named_parameters(loop.model, optimizers))
        self.signals: list[Signal] = [kind(subject) for kind in (Weights, Gradient, Update)]
        self.parameters = list(loop.model.parameters())
        self.copies = [p.detach().clone() for p in self.parameters]

    def ours(self) -> None:
        for signal in self.signals:
            signal.before_update(1)
        for signal in self.signals:
            signal.after_update(1)
        found = [value for signal in self.signals for value in signal.measure(1).values()]
        torch.stack([value.double() for value in found if isinstance(value, torch.Tensor)]).tolist()

    @torch.no_grad()
    def floor(self) -> None:
        """Plain norms of weights, gradients and changes: no angle, no groups, no coverage."""
        torch._foreach_copy_(self.copies, self.parameters)
        weights = torch._foreach_norm(self.parameters)
        grads = torch._foreach_norm([p.grad for p in self.parameters])
        for p, copy in zip(self.parameters, self.copies, strict=True):
            copy.sub_(p)
        changes = torch._foreach_norm(self.copies)
        torch.stack([*weights, *grads, *changes]).tolist()

    @torch.no_grad()
    def naive(self) -> None:
        """The same as ours with a read for every tensor."""
        before = [p.detach().clone() for p in self.parameters]
        for p, old in zip(self.parameters, before, strict=True):
            p.norm().item()
            p.grad.norm().item()
            ((p - old).norm() / old.norm()).item()
            (p != old).sum().item()
            (p / p.norm() - old / old.norm()).norm().item()


def samples() -> dict[str, float]:
    loop = Loop()
    loop.step()
    loop.backward()
    sample = Sample(loop)
    ids = torch.randint(VOCAB, (PROBE_ROWS, 65))
    probe = Probe(ids[:, :-1], ids[:, 1:])
    signal = ProbeSignal(Subject(loop.model, [], [], {"probe": probe}))

    @torch.no_grad()
    def forward() -> None:
        rows = 8
        for start in range(0, PROBE_ROWS, rows):
            loop.model(probe.inputs_BT[start : start + rows])

    sample.ours()
    signal.measure(1)
    ours, floor, naive = interleaved(sample.ours, sample.floor, sample.naive, rounds=ROUNDS)
    probed, plain = interleaved(lambda: signal.measure(1), forward, rounds=ROUNDS)
    return {
        "full_sample_ms": ours,
        "full_sample_floor_ms": floor,
        "full_sample_over_floor": ours / floor,
        "naive_ms": naive,
        "probe_ms": probed,
        "probe_over_forward": probed / plain,
    }


def train(steps: int, budget: float | None) -> dict[str, Any]:
    """Two loops side by side, hooks off and on; every pair of steps is one comparison."""
    plain, hooked = Loop(), Loop()
    ids = torch.randint(VOCAB, (PROBE_ROWS, 65))
    with tempfile.TemporaryDirectory() as folder, StubServer() as server:
        w: Any = watch(
            hooked.model, hooked.optimizer, server=server.url, spool_dir=folder,
            probe=Probe(ids[:, :-1], ids[:, 1:]), overhead_budget=budget,
            every={} if budget else {"weights": 20, "probe": 100},
        )  # fmt: skip
        took: tuple[list[float], list[float]] = ([], [])
        for step in range(steps):
            for place in (0, 1) if step % 2 else (1, 0):
                began = time.perf_counter()
                if place:
                    w.step(loss=hooked.step(), tokens=256)
                else:
                    plain.step()
                took[place].append(time.perf_counter() - began)
        intervals = {c: w._schedule.interval(c) for c in ("weights", "probe")}
        w.close()
        got = server.received
        return {
            "overhead_pct": 100 * (_trimmed(took[1]) / _trimmed(took[0]) - 1),
            "hook_share_pct": 100 * w.hook_s / sum(took[1]),
            "full_samples": len(got.series("weight_norm/total")),
            "probes": len(got.series("loss/probe")),
            "intervals": intervals,
            "plain_step_ms": 1000 * statistics.median(took[0]),
        }


def _trimmed(values: list[float]) -> float:
    """The mean without the hundredth that other work on the machine made slowest."""
    kept = sorted(values)[: max(1, len(values) - max(1, len(values) // 100))]
    return sum(kept) / len(kept)


def measure_peers(values: dict[str, float], found: dict[str, Any]) -> dict[str, float]:
    with peers.installed("wandb", "tensorboard", "trackio") as folder:
        wandb_ms = peers.wandb_watch_ms()
        histograms_ms = peers.tensorboard_histograms_ms(folder)
        trackio_ms = peers.trackio_call_ms(values)
    return {
        "wandb_watch_ms": wandb_ms,
        "vs_wandb_watch": wandb_ms / found["full_sample_ms"],
        "tensorboard_hist_ms": histograms_ms,
        "vs_tensorboard_hist": histograms_ms / found["full_sample_ms"],
        "trackio_call_ms": trackio_ms,
        "vs_trackio_call": 1000 * trackio_ms / found["step_call_us"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", action="store_true", help="install and measure other trackers")
    parser.add_argument("--steps", type=int, default=420, help="of each of the training loops")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    values = {f"mine/{i}": i / 7 for i in range(VALUES)}
    found: dict[str, Any] = {"load": os.getloadavg()[0]} | step_calls(values)
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found |= samples()
    after_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found["peak_extra_mib"] = after_mib - before_mib
    unthrottled = train(chosen.steps, None)
    default = train(chosen.steps, 0.01)
    found |= default | {
        "overhead_unthrottled_pct": unthrottled["overhead_pct"],
        "probes": unthrottled["probes"] + default["probes"],
        "full_samples": unthrottled["full_samples"] + default["full_samples"],
        "unthrottled": unthrottled,
    }
    if chosen.peers:
        found |= measure_peers(values, found)
    sys.stdout.write(json.dumps(found, default=str) + "\n")


if __name__ == "__main__":
    main()
