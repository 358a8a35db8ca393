"""What the hooks cost a training thread, against floors and other trackers in the same run.

``python -m tests.bench.hooks [--peers] [--steps 1600]``. The last line is JSON. Ratios travel
between machines; milliseconds do not, and mean little on a machine that does other work (``load``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from typing import Any

import torch

from tests.bench.parts import peers
from tests.bench.parts.calls import against, step_calls
from tests.bench.parts.full_sample import Sample, probes
from tests.bench.parts.memory import peak_mib
from tests.bench.parts.timing import ROUNDS, interleaved
from tests.bench.parts.training import train

STEPS = 1600
UNTHROTTLED_STEPS = 200


def full_samples(others: dict[str, Any]) -> dict[str, float]:
    """Ours, the floor, the naive way and what others do, one after the other in every round."""
    peak = peak_mib(Sample().ours)
    sample = Sample()
    acts = {"ours": sample.ours, "floor": sample.floor, "naive": sample.naive} | others
    found = interleaved(acts, ROUNDS)
    ours, floor = found["ours"], found["floor"]
    result = {
        "full_sample_ms": ours.wall_ms,
        "full_sample_floor_ms": floor.wall_ms,
        "full_sample_over_floor": ours.wall_ms / floor.wall_ms,
        "full_sample_over_floor_cpu": ours.cpu_ms / floor.cpu_ms,
        "naive_ms": found["naive"].wall_ms,
        "full_sample_peak_mib": peak,
    }
    if "wandb_watch_step" in found:
        fired, plain = found["wandb_watch_step"], found["plain_step"]
        result["wandb_watch_ms"] = fired.wall_ms - plain.wall_ms
        result["vs_wandb_watch"] = result["wandb_watch_ms"] / ours.wall_ms
        result["vs_wandb_watch_cpu"] = (fired.cpu_ms - plain.cpu_ms) / ours.cpu_ms
    if "tensorboard_hist" in found:
        histograms = found["tensorboard_hist"]
        result["tensorboard_hist_ms"] = histograms.wall_ms
        result["vs_tensorboard_hist"] = histograms.wall_ms / ours.wall_ms
        result["vs_tensorboard_hist_cpu"] = histograms.cpu_ms / ours.cpu_ms
    return result


def peer_calls() -> dict[str, float]:
    """A call with 300 scalars, ours and theirs."""
    with peers.calls() as calls:
        found = against(calls)
    return {
        "trackio_call_us": found["trackio"],
        "wandb_call_us": found["wandb"],
        "step_call_beside_peers_us": found["ours"],
        "vs_trackio_call": found["trackio"] / found["ours"],
        "vs_trackio_call_cpu": found["trackio_cpu"] / found["ours_cpu"],
        "vs_wandb_call": found["wandb"] / found["ours"],
        "vs_wandb_call_cpu": found["wandb_cpu"] / found["ours_cpu"],
    }


def measure(with_peers: bool, steps: int) -> dict[str, Any]:
    """All of it; what needs quiet threads comes before what starts its own."""
    found: dict[str, Any] = {"load": os.getloadavg()[0]} | step_calls() | probes(ROUNDS)
    unthrottled = train(UNTHROTTLED_STEPS, 2, overhead_budget=None)
    found |= train(steps, 3)
    found |= {
        "overhead_unthrottled_pct": unthrottled["overhead_pct"],
        "overhead_unthrottled_cpu_pct": unthrottled["overhead_cpu_pct"],
        "unthrottled": unthrottled,
    }
    with ExitStack() as stack:
        others: dict[str, Any] = {}
        if with_peers:
            folder = stack.enter_context(peers.installed())
            others |= stack.enter_context(peers.wandb_watch())
            others["tensorboard_hist"] = peers.tensorboard_histograms(folder)
        found |= full_samples(others)
        found["peak_extra_mib"] = max(found["full_sample_peak_mib"], found["probe_peak_mib"])
        if with_peers:
            found |= peer_calls()
    return found | {"load_after": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", action="store_true", help="install and measure other trackers")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training at default settings")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    found = measure(chosen.peers, chosen.steps)
    sys.stdout.write(json.dumps(found, default=str) + "\n")


if __name__ == "__main__":
    main()
