"""Answers day by day: what they show of real runs, how soon the page shows it, and the guard.

    python -m tests.bench.answers [--seeds 1] [--times 3] [--only days|page|guard] [--keep FOLDER]

*Days*: the zoo's over-training, its shortening answers and a healthy control, each trained anew and
asked at six checkpoints, a simulated day apart, by ``watchkeeper sample`` in its own process.
*Page*: 60 days of 200 prompts with 2 KB of text each, in a real browser with an empty cache.
*Guard*: a sampler that leaves the loader alone, one whose window another stall falls into, and one
that starves the loader.

``--keep`` keeps checkpoints and the full store for the next time. The last line is one JSON object:
``drift_opened_at_sampling`` (by fault, one for each seed; null: never), ``control_alerts`` (of
``answers_drift`` over the control's days; ``control_warnings``: of all detectors), ``page_ms`` and
``page_kb`` (first answer shown; all that is sent but the drawing library, which a browser keeps),
``diff_ms`` (processor time of 2 x 64 KiB), ``guard_named_sampler`` (in which starved window the
alert opened; null: never, or when it should not).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.parts.answer_page import page_figures
from tests.bench.parts.server import serving
from tests.fixtures.answer_days import CONTROL, OVER_TRAINING, SHORT_ANSWERS, Days, Story, lived
from tests.fixtures.starving import beside

FAULTS = (OVER_TRAINING, SHORT_ANSWERS)
GUARD_STORY = ("calm", "stall", "starve", "starve")
KEYS = (
    "drift_opened_at_sampling", "control_alerts", "page_ms", "diff_ms", "page_kb",
    "guard_named_sampler",
)  # fmt: skip


def days_figures(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """What the alerts say of each story's days."""
    opened: dict[str, list[int | None]] = {story.fault: [] for story in FAULTS}
    controls: list[Days] = []
    for seed in seeds:
        for story in FAULTS:
            opened[story.fault].append(_lived(folder, story, seed).opened_at_sampling)
        controls.append(_lived(folder, CONTROL, seed))
    return {
        "drift_opened_at_sampling": opened,
        "control_alerts": sum(len(days.drift) for days in controls),
        "control_warnings": [name for days in controls for name in days.warnings],
        "seeds": list(seeds),
    }


def _lived(folder: Path, story: Story, seed: int) -> Days:
    with tempfile.TemporaryDirectory() as store, serving(Path(store)) as server:
        days = lived(f"http://{server.host}:{server.port}", story, seed, folder)
    _say(f"{days.run}: opened at sampling {days.opened_at_sampling}; told {days.warnings}")
    for point in days.trends["points"]:
        numbers = point["numbers"]
        _say(
            f"  step {point['weights_step']}: length {numbers['length']:.0f},"
            f" confidence {numbers['confidence']:.3f}, ends {numbers['ends']:.4f},"
            f" reference NLL {numbers['reference_nll']:.3f}"
        )
    return days


def guard_figures() -> dict[str, Any]:
    """In which window of a starving sampler the alert opened, counted from 1."""
    with tempfile.TemporaryDirectory() as temporary:
        store, work = Path(temporary) / "store", Path(temporary) / "work"
        store.mkdir()
        work.mkdir()
        with serving(store) as server:
            windows = list(beside(f"http://{server.host}:{server.port}", work, GUARD_STORY))
    for what, window in zip(GUARD_STORY, windows, strict=True):
        _say(f"{what}: {window['verdict']}; alerts {len(window['told'])}")
    starving = GUARD_STORY.index("starve")
    named = next((n for n, one in enumerate(windows) if one["told"]), None)
    right = named is not None and named >= starving
    return {
        "guard_named_sampler": named - starving + 1 if right and named is not None else None,
        "guard_verdicts": [window["verdict"] for window in windows],
    }


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", choices=("days", "page", "guard"))
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = dict.fromkeys(KEYS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        for name in ("days", "page"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if args.only in (None, "page"):
            found |= page_figures(folder / "page", args.times)
        if args.only in (None, "guard"):
            found |= guard_figures()
        if args.only in (None, "days"):
            seeds = range(args.first_seed, args.first_seed + args.seeds)
            found |= days_figures(folder / "days", seeds)
    _say(json.dumps({"bench": "answers", **found, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
