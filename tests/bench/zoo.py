"""Fresh runs of the zoo, judged: which faults are found, how soon, by whom, and what is cried wolf.

``python -m tests.bench.zoo [FAULT ...] [--seeds N] [--keep FOLDER]`` trains; with ``--from FOLDER``
it judges recorded runs (``*.wire.jsonl``, as ``--keep`` leaves them). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.parts.zoo_truth import EXPECTED, OF_THE_MACHINE
from tests.fixtures.traces import Told
from tests.fixtures.zoo_runs import judge_batches, read_batches, train_recorded, write_batches
from trainer_hooks.zoo.faults import FAULTS

ALL = tuple(FAULTS)
QUICK = ("stale_loader", "bad_batch", "frozen_layer", "control_lr_restart")
ONSET_SLACK = 0.1


@dataclass(slots=True)
class Judged:
    """One run: its truth and its alerts."""

    name: str
    truth: dict[str, Any]
    told: list[Told] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return self.truth["onset"] is None

    @property
    def caught(self) -> Told | None:
        """The first alert of the right detector in time."""
        if self.is_sound:
            return None
        expected, onset = EXPECTED[self.truth["fault"]], self.truth["onset"]
        right = [
            told
            for told in self.told
            if told.detector in expected.detectors
            and onset <= told.opened <= onset + expected.limit
        ]
        return min(right, key=lambda told: told.opened) if right else None

    @property
    def wrong(self) -> list[Told]:
        """Warnings or worse before anything was wrong, or where nothing ever was."""
        onset = self.truth["onset"]
        return [
            told
            for told in self.told
            if told.severity != "info"
            and told.detector not in OF_THE_MACHINE
            and (onset is None or told.opened < onset)
        ]

    @property
    def healthy_steps(self) -> int:
        return int(self.truth["steps"] if self.is_sound else self.truth["onset"] - 1)


def recorded(folder: Path) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Runs that lie in a folder, with their truth."""
    for path in sorted(folder.glob("*.wire.jsonl*")):
        truth = folder / f"{path.name.partition('.wire')[0]}.truth.json"
        if truth.exists():
            yield truth.name.partition(".")[0], json.loads(truth.read_text()), read_batches(path)


def trained(
    faults: Sequence[str], seeds: Sequence[int], keep: Path | None
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Runs that are trained now; kept where asked, and not trained again where kept already."""
    from trainer_hooks.zoo.run import truth

    for seed in seeds:
        for fault in faults:
            name = f"{fault}-s{seed}"
            if keep is not None and (keep / f"{name}.truth.json").exists():
                continue
            told = truth(fault, seed=seed)
            facts = {
                name: getattr(told, name) for name in ("fault", "seed", "steps", "onset", "end")
            }
            batches = train_recorded(fault, seed=seed)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                write_batches(keep / f"{name}.wire.jsonl.gz", batches)
                (keep / f"{name}.truth.json").write_text(json.dumps(facts))
            yield name, facts, batches


def describe(run: Judged) -> str:
    """What was said of a run, line by line."""
    onset = run.truth["onset"]
    caught = run.caught
    verdict = "sound" if run.is_sound else "MISSED"
    if caught is not None:
        verdict = f"caught by {caught.detector} after {caught.opened - onset} steps"
    lines = [f"{run.name}: onset {onset}, {verdict}, {len(run.wrong)} wrong"]
    for told in run.told:
        lines.append(
            f"    {told.detector} {told.subject} {told.severity} {told.reason}: "
            f"onset {told.onset}, opened {told.opened}, {told.state} {told.resolved or ''}"
        )
    return "\n".join(lines)


def figures(runs: Sequence[Judged]) -> dict[str, Any]:
    """The last line."""
    spoilt = [run for run in runs if not run.is_sound]
    found = [(run, caught) for run in spoilt if (caught := run.caught) is not None]
    delays = [caught.opened - run.truth["onset"] for run, caught in found]
    right_onset = [
        abs(caught.onset - run.truth["onset"]) <= max(10, ONSET_SLACK * run.truth["onset"])
        for run, caught in found
    ]
    steps = sum(run.healthy_steps for run in runs)
    wrong = sum(len(run.wrong) for run in runs)
    return {
        "runs": len(runs),
        "recall": len(found) / len(spoilt) if spoilt else None,
        "median_delay_steps": median(delays) if delays else None,
        "onset_right_share": sum(right_onset) / len(right_onset) if right_onset else None,
        "misses": [run.name for run in spoilt if run.caught is None],
        "healthy_steps": steps,
        "false_alarms": wrong,
        "false_alarms_per_10k": 1e4 * wrong / steps if steps else None,
        "of_the_machine": sum(told.detector in OF_THE_MACHINE for run in runs for told in run.told),
        "infos_in_sound_runs": sum(
            told.severity == "info" for run in runs if run.is_sound for told in run.told
        ),
    }


def judge_all(source: Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]) -> list[Judged]:
    """Judge each run, and say what was said of it."""
    runs = []
    for name, truth, batches in source:
        runs.append(Judged(name, truth, judge_batches(batches)))
        sys.stdout.write(describe(runs[-1]) + "\n")
        sys.stdout.flush()
    return runs


def main(arguments: Sequence[str]) -> None:
    """Judge, describe, sum up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("faults", nargs="*", default=list(QUICK))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--from", dest="folder", type=Path)
    options = parser.parse_args(arguments)
    first = options.first_seed
    if options.folder is not None:
        source = recorded(options.folder)
    else:
        source = trained(options.faults, range(first, first + options.seeds), options.keep)
    sys.stdout.write(json.dumps(figures(judge_all(source))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
