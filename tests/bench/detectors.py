"""What the detectors say of recorded runs, how soon, how often wrongly, and at what cost.

``python -m tests.bench.detectors [FILE ...]``: without files, those of ``tests/runs``. Prints every
alert; beside the recorded faults, each healthy curve is judged again with its level frozen at three
places (its noise kept), and with real failures spliced in at five. ``RUNS=DIR[:DIR]`` adds further
folders. Without files a few runs of the zoo are trained and judged as well
(``tests.bench.zoo`` trains all of them). The last line is JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from monitor.services.judging import DetectionEngine
from tests.bench import splices, zoo
from tests.fixtures.traces import Row, Told, entries, judge, read_rows

RUNS = Path(__file__).parents[1] / "runs"
ONSETS = {
    "stale16": 600, "repeat64k": 0, "lr0": 500, "nan": 200, "badbatch": 500, "template": 400,
}  # fmt: skip
"""Of recorded faults: the first spoilt step."""
FROZEN_AT = (0.3, 0.5, 0.7)
SMOOTH_POINTS = 50
"""A batch loss is frozen at its running mean, not at one lucky batch."""


FEWEST = {False: 40, True: 1000}
"""Shorter curves have no power, and the detector says so: evaluations, and batch losses."""


def is_sound(path: Path) -> bool:
    return path.name.startswith(("healthy", "benign", "grok_modadd67", "grok_modadd97_adamw_wd1"))


def frozen(rows: Sequence[Row], key: str, share: float) -> tuple[int, list[Row]]:
    """The run with one loss frozen from a share of its points on; the first frozen step."""
    having = [index for index, row in enumerate(rows) if key in row.values]
    width = SMOOTH_POINTS if key == "loss/train" else 1
    start, level, smooth = having[int(share * len(having))], None, 0.0
    out: dict[int, float] = {}
    for number, index in enumerate(having):
        loss = rows[index].values[key]
        smooth = loss if number == 0 else smooth + (loss - smooth) / width
        if index == start:
            level = smooth
        # An evaluation has no noise of its own to keep: a little is made.
        noise = loss - smooth if width > 1 else 0.0005 * ((number * 7919) % 13 - 6)
        out[index] = loss if level is None else level + noise
    kept = ("lr/", "tokens_seen")
    return rows[start].step, [
        replace(row, values={
            **{name: v for name, v in row.values.items() if name.startswith(kept)},
            **({key: out[index]} if index in out else {}),
        })
        for index, row in enumerate(rows)
    ]  # fmt: skip


def find_frozen(rows: Sequence[Row], say: Callable[[str], object]) -> tuple[int, int]:
    """How many frozen curves were found, of how many."""
    found = tried = 0
    for key in ("loss/heldout", "loss/probe", "loss/train"):
        if sum(key in row.values for row in rows) < FEWEST[key.partition("/")[2] == "train"]:
            continue
        for share in FROZEN_AT:
            onset, changed = frozen(rows, key, share)
            told = [t for t in judge(entries(changed)) if t.detector == "loss_plateau"]
            tried += 1
            found += any(alert.opened > onset for alert in told)
            delay = f"{told[0].opened - onset} steps later" if told else "MISSED"
            say(f"    {key} frozen at {onset}: {delay}")
    return found, tried


def describe(path: Path, told: Sequence[Told], rows: int) -> str:
    onset = ONSETS.get(path.name.split(".")[0])
    lines = [f"{path.name}: {rows} rows, {len(told)} alerts"]
    for alert in told:
        delay = "" if onset is None else f", {alert.opened - onset} after the fault began"
        lines.append(
            f"    {alert.detector} {alert.subject} {alert.severity}: onset {alert.onset}, "
            f"opened {alert.opened}{delay}, {alert.state}"
        )
    return "\n".join(lines)


def folders() -> list[Path]:
    """Further folders of recorded runs, from the environment: ``RUNS=DIR[:DIR...]``."""
    return [Path(name) for name in os.environ.get("RUNS", "").split(":") if name]


def main(arguments: Sequence[str]) -> None:
    say = sys.stdout.write
    paths = [Path(name) for name in arguments] or sorted(RUNS.glob("*/*.csv.gz"))
    paths += [path for folder in folders() for path in sorted(folder.rglob("*.csv.gz"))]
    spliced: list[splices.Tried] = []
    steps = alarms = found = tried = needed = 0
    spent_s = 0.0
    for path in paths:
        rows = read_rows(path)
        if not rows:
            continue
        log, engine = entries(rows), DetectionEngine("run")
        began = time.process_time()
        told = judge(log, engine)
        spent_s += time.process_time() - began
        needed += sum(bool(engine._read_by(key)) for row in rows for key in row.values)
        say(describe(path, told, len(rows)) + "\n")
        if is_sound(path):
            steps += len(rows)
            alarms += sum(alert.severity != "info" for alert in told)
            if path.name.startswith("healthy"):
                more = find_frozen(rows, lambda text: say(text + "\n"))
                found, tried = found + more[0], tried + more[1]
                spliced += (mine := splices.try_all(rows))
                say("".join(f"{line}\n" for line in splices.lines_of(mine)))
    result = {
        "healthy_steps": steps,
        "false_alarms": alarms,
        "false_alarms_per_10k_steps": 1e4 * alarms / max(steps, 1),
        # Poisson: none in N bounds the rate at 3 / N.
        "upper_bound_95_per_10k_steps": 1e4 * (3.0 if not alarms else alarms + 3.0) / max(steps, 1),
        "frozen_curves_found": found,
        "frozen_curves": tried,
        "us_per_needed_point": 1e6 * spent_s / max(needed, 1),
        "splices": splices.figures(spliced),
        "points_per_s": needed / max(spent_s, 1e-9),
    }
    if not arguments:
        result["zoo"] = zoo.figures(zoo.judge_all(zoo.trained(zoo.QUICK, (0,), None)))
    say(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
