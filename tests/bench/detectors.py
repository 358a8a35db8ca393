"""How soon the detectors find what is wrong, how often they cry wolf, and what they cost.

``python -m tests.bench.detectors [FILE ...]``: without files, the recorded runs of ``tests/runs``,
real failures spliced into the healthy ones, and fresh runs of the zoo. ``RUNS=DIR[:DIR]`` adds
further folders. Development and judgement half are apart by source (``split.toml``); the figures of
the last line, which is JSON, are those of the judgement half, and ``development`` holds the others.

    --zoo FAULT ...    which runs are trained (default: four short ones; "all": every one)
    --seeds N          how many seeds of each (default 2: one for each half); --first-seed N
    --from FOLDER      judge recorded runs of the zoo instead (``tests.bench.zoo --keep`` left them)
    --places SHARE ... splice at these places only (default: five)
    --no-splices, --no-variants, --no-zoo
    --peers            trainpulse, trainspotter, losslint and runmedic on the same series as well
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

from monitor.detectors.tuned import parameters
from monitor.domain.log import LogEntry
from monitor.services.judging import DetectionEngine, load_all
from tests.bench import zoo
from tests.bench.parts.baselines import BASELINES, curve_of, judged_by, points_of
from tests.bench.parts.cases import RUNS, Case, kept, recorded, spliced
from tests.bench.parts.cases import zoo as zoo_cases
from tests.bench.parts.demands import demands
from tests.bench.parts.rivals import RIVALS, Rivals, rivals
from tests.bench.parts.scoring import (
    SECONDS_A_DAY,
    Outcome,
    figures,
    figures_of,
    groups_table,
    per_source,
    sources_table,
)
from tests.bench.parts.variants import VARIANTS
from tests.fixtures.traces import judge

HALVES = ("development", "judgement")
TOLD = (
    "faults", "healthy_steps", "false_alarms", "false_alarms_per_10k", "recall",
    "recall_where_it_shows", "recall_in_time", "median_delay_steps", "right_cause_share", "misses",
)  # fmt: skip
"""Of a variant."""


class Bench:
    """Judges cases one after the other, and keeps what was said and what it cost."""

    def __init__(self, peers: Rivals | None) -> None:
        self.peers = peers
        self.outcomes: list[Outcome] = []
        self.seconds = 0.0
        self.needed = 0

    def judge(self, case: Case) -> Outcome:
        """Ours, the baselines, and the peers where they were asked for."""
        log = case.log()
        engine = DetectionEngine("run")
        self.needed += needed_points(log, engine)
        began = time.process_time()
        told = judge(log, engine)
        self.seconds += time.process_time() - began
        steps = [int(frame.steps[i]) for e in log for frame in e.frames for i in (0, -1)]
        outcome = Outcome(case, told, min(steps), max(steps), days_of(log))
        curve = curve_of(log)
        if outcome.caught is not None:
            span = range(case.onset or 0, outcome.caught.opened)
            outcome.late_points = sum(step in span for step, _ in curve.loss)
        top1 = points_of(log, "top1/probe")
        outcome.top1_peak = max(top1, key=lambda point: point[1])[0] if top1 else None
        outcome.others = judged_by(curve)
        if self.peers is not None:
            outcome.others |= self.peers.alarms(log)
        self.outcomes.append(outcome)
        return outcome

    def half(self, half: str) -> list[Outcome]:
        """What was said of one half."""
        return [one for one in self.outcomes if one.case.half == half]

    def result(self) -> dict[str, Any]:
        """Both halves; the judgement's on top."""
        summed = {half: self.summed(half) for half in HALVES}
        return {
            **summed["judgement"],
            "us_per_point": 1e6 * self.seconds / max(self.needed, 1),
            "points_per_s": self.needed / max(self.seconds, 1e-9),
            "params_sha256": params_hash(),
            "development": summed["development"],
        }

    def summed(self, half: str) -> dict[str, Any]:
        """One half: ours, by kind of case and by source, and what the others said of it."""
        mine = self.half(half)
        rates = sorted(per_source(mine).values())
        others = [*BASELINES, *(self.peers.names if self.peers is not None else ())]
        return {
            **figures(mine),
            "false_alarms_per_10k_median_of_sources": rates[len(rates) // 2] if rates else None,
            "sources_with_two_or_more": [
                source for source, row in sources_table(mine).items() if row["false_alarms"] > 1
            ],
            "by_kind": groups_table(mine),
            "by_source": sources_table(mine),
            "demands": demands(mine),
            "baselines": {name: figures_of(name, mine) for name in others},
        }


def needed_points(log: Sequence[LogEntry], engine: DetectionEngine) -> int:
    """Values that some detector reads."""
    return sum(
        int(column.present.sum()) if column.present is not None else len(frame.steps)
        for entry in log
        for frame in entry.frames
        for key, column in frame.columns.items()
        if engine._read_by(key)
    )


def days_of(log: Sequence[LogEntry]) -> float | None:
    """How long the run took, at the step time it logged; None where it logged none."""
    times = sorted(value for _, value in points_of(log, "step_s"))
    if not times:
        return None
    steps = {int(step) for entry in log for frame in entry.frames for step in frame.steps}
    return times[len(times) // 2] * (max(steps) - min(steps) + 1) / SECONDS_A_DAY


def params_hash() -> str:
    """Of every detector's version and parameters: the same hash, the same thresholds."""
    told = [
        (name, cls.version, sorted((key, repr(v)) for key, v in parameters(cls).items()))
        for name, cls in sorted(load_all().items())
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def describe(outcome: Outcome) -> str:
    """What was said of one case."""
    case, caught = outcome.case, outcome.caught
    verdict = "sound" if case.is_sound else "not scored" if case.expected is None else "MISSED"
    if caught is not None:
        verdict = f"caught by {caught.detector} after {caught.opened - (case.onset or 0)} steps"
    elif outcome.in_time:
        verdict += f" (its onset is {100 * outcome.onset_off(outcome.in_time[0]):.0f} % off)"
    lines = [f"{case.name} ({case.half}): {verdict}, {len(outcome.false)} false"]
    for one in outcome.told if case.group in ("recorded", "zoo") else outcome.false:
        lines.append(
            f"    {one.detector} {one.subject} {one.severity}: onset {one.onset}, "
            f"opened {one.opened}, {one.state}; {one.cause}"
        )
    return "\n".join(lines) + "\n"


def variants(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """The judgement half again as a worse line brings it, and how often verdicts came out other."""
    table = {}
    chosen = [
        one
        for one in outcomes
        if one.case.group in ("recorded", "zoo") or one.case.name.endswith("at 0.5")
    ]
    for name, judged in VARIANTS.items():
        again = [Outcome(one.case, judged(one.case.log()), one.first, one.last) for one in chosen]
        whole = figures(again)
        table[name] = {key: whole[key] for key in TOLD} | {
            "false": [f"{o.case.name}: {a.detector}" for o in again for a in o.false],
            "verdicts_differ": sum(
                sorted(map(str, a.told)) != sorted(map(str, b.told))
                for a, b in zip(chosen, again, strict=True)
            ),
            "cases": len(chosen),
        }
    plain = figures(chosen)
    return {"as it was": {key: plain[key] for key in TOLD}} | table


def folders() -> list[Path]:
    """Further folders of recorded runs, from the environment: ``RUNS=DIR[:DIR...]``."""
    return [Path(name) for name in os.environ.get("RUNS", "").split(":") if name]


def recorded_paths(files: Sequence[Path]) -> list[Path]:
    """The files named, else all of ``tests/runs``; a run that two folders hold is judged once."""
    if files:
        return list(files)
    found: dict[str, Path] = {}
    for folder in (RUNS, *folders()):
        for path in sorted(folder.rglob("*.csv.gz")):
            found.setdefault(f"{path.parent.name == 'zoo'} {path.name}", path)
    return list(found.values())


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """All that was asked for."""
    paths = recorded_paths(options.files)
    parts = [recorded(paths)]
    if not options.no_splices:
        parts.append(spliced(paths, options.places))
    if options.folder is not None:
        parts += [zoo_cases(kept(folder)) for folder in options.folder]
    elif not options.no_zoo and not options.files:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        faults = zoo.ALL if options.zoo == ["all"] else options.zoo
        parts.append(zoo_cases(zoo.trained(faults, seeds, None)))
    return chain(*parts)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--zoo", nargs="+", default=list(zoo.QUICK))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--places", type=float, nargs="+", default=[])
    parser.add_argument("--from", dest="folder", type=Path, nargs="+")
    for name in ("--no-splices", "--no-variants", "--no-zoo", "--peers"):
        parser.add_argument(name, action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parsed(arguments)
    with rivals() if options.peers else nullcontext() as peers:
        bench = Bench(peers)
        for case in cases(options):
            sys.stdout.write(describe(bench.judge(case)))
            sys.stdout.flush()
        result = bench.result()
        if peers is not None:
            result["peers_failed"] = {n: "not installed" for n in RIVALS if n not in peers.names}
            result["peers_failed"] |= peers.errors
    if not options.no_variants:
        result["variants"] = variants(bench.half("judgement"))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
