"""What the hooks cost on a CUDA device: step time, synchronisations, memory.

``python -m tests.bench.gpu_check [--steps 300] [--device cpu --width small]``. Needs torch and this
repository, nothing else. Two models of 160 million parameters train side by side, one of them
watched at default settings, in blocks of steps that take turns. The last line is JSON.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036 - it runs with whatever Python has torch
    sys.exit("the hooks need Python 3.11 or newer, and this one's torch")

import torch
from torch import nn
from torch.nn import functional

from tests.fixtures.stub_server import StubServer
from trainer_hooks import Probe, watch
from trainer_hooks.zoo.model import Block

ROOT = Path(__file__).resolve().parents[2]
WARM_UP_STEPS = 5
BLOCK_STEPS = 10
SETTLE_STEPS = 1
"""Of every block left out: the device was idle before it."""
SYNC_STEPS = 100
OFTEN = {"weights": 10, "probe": 25}
NOWHERE = "http://127.0.0.1:9"
MIB = 2**20
SYNC_WORDS = "called a synchronizing"
SYNC_CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


@dataclass(frozen=True, slots=True)
class Size:
    """A model and its batch."""

    vocab: int
    width: int
    layers: int
    heads: int
    rows: int
    length: int
    probe_rows: int


SIZES = {
    "160m": Size(50_304, 768, 12, 12, rows=8, length=512, probe_rows=64),
    "small": Size(512, 64, 2, 4, rows=4, length=32, probe_rows=8),
}
PROBE_LENGTH = 64


class Gpt(nn.Module):
    """Token ids [B, T] to logits [B, T, vocab]; embedding and head are not tied."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(size.vocab, size.width)
        self.pos_emb = nn.Embedding(max(size.length, PROBE_LENGTH), size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.final_norm = nn.RMSNorm(size.width)
        self.lm_head = nn.Linear(size.width, size.vocab, bias=False)

    def forward(self, ids_BT: Any) -> Any:
        places_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        x_BTD = self.tok_emb(ids_BT) + self.pos_emb(places_T)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return self.lm_head(self.final_norm(x_BTD))


@dataclass(slots=True)
class Side:
    """One of the two training loops; ``watch`` is None where it runs bare."""

    model: Any
    optimizer: Any
    batches: list[Any]
    device: torch.device
    watch: Any = None
    done: int = 0
    times_ms: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)

    def step(self) -> None:
        """One optimizer step; reads nothing of the device."""
        ids = self.batches[self.done % len(self.batches)]
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(ids[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done += 1
        if self.watch is not None:
            self.watch.step(loss=loss, tokens=ids.numel(), grad_norm=norm)
        self.losses.append(loss.detach())

    def block(self, steps: int) -> None:
        """Time some steps, one by one, without making the host wait between them."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
            marks[0].record()
            for mark in marks[1:]:
                self.step()
                mark.record()
            torch.cuda.synchronize()
            took = [a.elapsed_time(b) for a, b in zip(marks, marks[1:], strict=False)]
            self.peaks.append(torch.cuda.max_memory_allocated())
        else:
            took = []
            for _ in range(steps):
                began = time.perf_counter()
                self.step()
                took.append(1000 * (time.perf_counter() - began))
        self.times_ms += took[SETTLE_STEPS:]


def make_sides(size: Size, device: torch.device) -> tuple[Side, Side]:
    """Two loops with the same weights and the same data."""
    torch.manual_seed(1)
    batches = [
        torch.randint(size.vocab, (size.rows, size.length + 1), device=device) for _ in range(8)
    ]
    sides = []
    for _ in range(2):
        torch.manual_seed(0)
        model = Gpt(size).to(device)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-4, fused=True if device.type == "cuda" else None
        )
        sides.append(Side(model, optimizer, batches, device))
    return sides[0], sides[1]


@contextmanager
def server_beside() -> Iterator[tuple[str, Callable[[], dict[str, int]]]]:
    """A server in a process of its own: its address, and what asks it for its points by series."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.gpu_check", "--serve"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    out = child.stdout

    def ended() -> dict[str, int]:
        found: dict[str, int] = json.loads(child.communicate(timeout=60)[0])
        return found

    try:
        yield out.readline().strip(), ended
    finally:
        child.kill()
        child.wait()


def serve() -> None:
    """The child: serve until the parent hangs up, then say what came."""
    with StubServer() as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        counts = collections.Counter(key for _, key, _ in server.received.values())
    sys.stdout.write(json.dumps(counts) + "\n")


def count_warned(side: Side, steps: int) -> tuple[int, list[str]]:
    """Synchronising operations that torch itself warns of, and the lines they came from."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(steps):
                side.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found = [w for w in caught if SYNC_WORDS in str(w.message)]
    places = collections.Counter(f"{Path(w.filename).name}:{w.lineno}" for w in found)
    return len(found), [f"{place} x{count}" for place, count in places.most_common(10)]


def count_calls(side: Side, steps: int) -> dict[str, int] | None:
    """Calls into the driver that wait, and copies to the host, as the profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                side.step()
            torch.cuda.synchronize()
        counts = {event.key: event.count for event in profiler.key_averages()}
    except Exception as error:
        sys.stderr.write(f"the profiler cannot be used here: {error}\n")
        return None
    return {
        "waits": sum(counts.get(name, 0) for name in SYNC_CALLS),
        "copies_to_host": sum(n for key, n in counts.items() if key.startswith("Memcpy DtoH")),
    }


def synchronisations(bare: Side, watched: Side, size: Size) -> dict[str, Any]:
    """What the hooks add over the same number of steps; all None without a CUDA device.

    With samples often and unthrottled, so that many fall into these steps.
    """
    names = ("syncs_off", "syncs_on", "syncs_added", "sync_places", "sync_steps", "sync_samples",
             "waits_off", "waits_on", "copies_to_host_off", "copies_to_host_on")  # fmt: skip
    if bare.device.type != "cuda":
        return dict.fromkeys(names)
    with tempfile.TemporaryDirectory() as spool:
        start_watch(watched, size, NOWHERE, spool, None, every=OFTEN)
        for _ in range(max(OFTEN.values())):  # what is made once is made here
            watched.step()
        off, _ = count_warned(bare, SYNC_STEPS)
        on, places = count_warned(watched, SYNC_STEPS)
        calls_off, calls_on = count_calls(bare, SYNC_STEPS), count_calls(watched, SYNC_STEPS)
        watched.watch.close(timeout_s=1.0)
        watched.watch = None
    samples = sum(SYNC_STEPS // every for every in OFTEN.values())
    return dict(zip(names, (
        off, on, on - off, places, SYNC_STEPS, samples,
        calls_off and calls_off["waits"], calls_on and calls_on["waits"],
        calls_off and calls_off["copies_to_host"], calls_on and calls_on["copies_to_host"],
    ), strict=True))  # fmt: skip


def intervals(side: Side) -> dict[str, int]:
    """The steps between two samples that the hooks came to."""
    return {name: side.watch._schedule.interval(name) for name in ("weights", "probe")}


def quantile(values: list[float], share: float) -> float:
    """The value below which a share of them lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def compared(off: list[float], on: list[float]) -> dict[str, float]:
    """Step times in ms and what the hooks add to them in per cent."""
    measures: dict[str, Callable[[list[float]], float]] = {
        "median": lambda values: quantile(values, 0.5),
        "p99": lambda values: quantile(values, 0.99),
        "mean": lambda values: sum(values) / len(values),
    }
    found = {}
    for name, measure in measures.items():
        a, b = measure(off), measure(on)
        found |= {
            f"step_ms_{name}_off": a,
            f"step_ms_{name}_on": b,
            f"overhead_{name}_pct": 100 * (b / a - 1),
        }
    return found


def allocated(device: torch.device) -> int:
    """Bytes of the device in use."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


def start_watch(
    side: Side,
    size: Size,
    url: str,
    spool: str,
    budget: float | None,
    every: dict[str, int] | None = None,
) -> None:
    """Attach the hooks as a user would, with a probe of 4,096 tokens at full size."""
    ids = torch.randint(size.vocab, (size.probe_rows, PROBE_LENGTH + 1))
    side.watch = watch(
        side.model, side.optimizer, name="gpu-check", server=url, spool_dir=spool,
        probe=Probe(ids[:, :-1], ids[:, 1:]), overhead_budget=budget, every=every or {},
    )  # fmt: skip


def timed(
    bare: Side, watched: Side, size: Size, steps: int, budget: float | None
) -> dict[str, Any]:
    """Step times, memory and what was sampled, with a watch of its own."""
    for side in (bare, watched):
        side.times_ms, side.peaks = [], []
    with tempfile.TemporaryDirectory() as spool, server_beside() as (url, points):
        before = allocated(watched.device)
        start_watch(watched, size, url, spool, budget)
        for side in (bare, watched):  # the first sample warms up too
            for _ in range(WARM_UP_STEPS):
                side.step()
        resident = allocated(watched.device) - before
        hook_s = watched.watch.hook_s
        for turn in range(max(1, steps // BLOCK_STEPS)):
            for side in (bare, watched) if turn % 2 else (watched, bare):
                side.block(BLOCK_STEPS)
        hook_s = watched.watch.hook_s - hook_s
        chosen, tally = intervals(watched), watched.watch.tally()
        watched.watch.close()
        watched.watch = None
        counts = points()
    peak = max(watched.peaks) - max(bare.peaks) + resident if bare.peaks else None
    return {
        "steps": len(watched.times_ms),
        **compared(bare.times_ms, watched.times_ms),
        "hook_host_pct": 100 * hook_s / (sum(watched.times_ms) / 1000),
        "peak_added_mib": None if peak is None else peak / MIB,
        "resident_added_mib": None if peak is None else resident / MIB,
        "intervals": chosen,
        "full_samples": counts.get("weight_norm/total", 0),
        "probes": counts.get("loss/probe", 0),
        "hook_errors": tally.hook_errors,
    }


def measure(size: Size, device: torch.device, steps: int, budget: float | None) -> dict[str, Any]:
    """With the budget, then without one (``unthrottled``); synchronisations; losses."""
    bare, watched = make_sides(size, device)
    for side in (bare, watched):
        for _ in range(WARM_UP_STEPS):
            side.step()
    found = timed(bare, watched, size, steps, budget)
    unthrottled = timed(bare, watched, size, steps, None)
    differences = (torch.stack(bare.losses) - torch.stack(watched.losses)).abs()
    return {
        "parameters": sum(p.numel() for p in bare.model.parameters()),
        **found,
        "unthrottled": unthrottled,
        "largest_loss_difference": differences.max().item(),
        **synchronisations(bare, watched, size),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--width", default="160m", choices=tuple(SIZES))
    parser.add_argument("--steps", type=int, default=300, help="of each of the two loops")
    parser.add_argument("--budget", type=float, default=0.01, help="0: no bound")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return
    if chosen.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing was measured")
    device = torch.device(chosen.device)
    card = torch.cuda.get_device_name() if chosen.device == "cuda" else "cpu"
    head = {"card": card, "torch": torch.__version__, "load": os.getloadavg()[0]}
    found = measure(SIZES[chosen.width], device, chosen.steps, chosen.budget or None)
    sys.stdout.write(json.dumps(head | found) + "\n")


if __name__ == "__main__":
    main()
