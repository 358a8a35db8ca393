"""The series the detectors are judged on: recorded runs, splices into them, runs of the zoo.

A case has its log, its source and half (``tests/bench/split.toml``), and its truth. What lies
before a fault's onset counts as healthy.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from monitor.domain.log import LogEntry
from monitor.errors import WatchkeeperError
from monitor.importers import read_log
from monitor.services.backtest import imported_entries
from tests.bench import splices
from tests.bench.parts.zoo_truth import ANY_STEP, EXPECTED, Expected
from tests.fixtures.traces import Row, entries, read_rows
from tests.fixtures.zoo_runs import log_of, read_batches

BENCH = Path(__file__).parents[1]
RUNS = BENCH.parent / "runs"
RECORDED_ZOO = "zoo recorded"
FRESH_ZOO = "zoo"
SOUND = ("healthy", "benign", "noisy", "grok_modadd67", "grok_modadd97_adamw_wd1")
SOUND_ZOO = ("adamw_wd1_const", "fp32_same_as_bf16w")
SAME_RUN_TWICE = ("healthy_modded_124m_adam_pace",)
FROZEN_AT = (0.3, 0.5, 0.7)
LOOKED_BACK, MUST_STAND_OUT = 100, 3
FEWEST_TO_FREEZE = {"loss/heldout": 40, "loss/probe": 40, "loss/train": 1000}
"""Shorter curves have no power, and the detector says so."""


@dataclass(frozen=True, slots=True)
class Case:
    """``onset`` None: sound. ``healthy_steps``: logged steps in which nothing is wrong.

    ``group``: recorded, zoo, or the name of a splice. ``expected`` None with an onset: printed, and
    not scored.
    """

    name: str
    source: str
    half: str
    group: str
    log: Callable[[], list[LogEntry]]
    healthy_steps: int
    onset: int | None = None
    expected: Expected | None = None
    last_good_step: int | None = None
    """The limit as a step, where it is counted in points and not in steps."""
    shows: bool = True
    """Whether what was spliced in stands out of what the history does by itself."""

    @property
    def is_sound(self) -> bool:
        return self.onset is None

    @property
    def deadline(self) -> int:
        """The last step at which an alert is in time."""
        if self.last_good_step is not None:
            return self.last_good_step
        return (self.onset or 0) + (self.expected.limit if self.expected else 0)


# What the recorded failures are, by file name: onset, limit in steps, who has to say so, and the
# cause where the log holds one. A failure that is not here is printed and not scored: its log has
# too few rows to know the run by (those are spliced into healthy histories instead).
_FROM_START = 130
"""Faults that are there from the first step: no verdict falls within the warm-up."""
RECORDED: dict[str, tuple[int, Expected]] = {
    "stale16": (600, EXPECTED["stale_loader"]),
    "badbatch": (500, EXPECTED["bad_batch"]),
    "nan": (200, EXPECTED["nan_loss"]),
    "lr0": (500, EXPECTED["zero_lr"]),
    "slowloader": (300, EXPECTED["slow_loader"]),
    "ddp_desync": (300, EXPECTED["rank_desync"]),
    "resume_noopt": (800, replace(EXPECTED["resume_noopt"], detectors=("resume_jump", "stale_data"),
                                  cause=f"{EXPECTED['resume_noopt'].cause}|repeat|served")),
    # The template's own share was not recorded: the gap to the held-out loss has to show it.
    "template": (400, Expected(100, ("train_heldout_gap",), EXPECTED["template_leak"].cause)),
    "repeat64k": (1, EXPECTED["over_training"]),
    "frozen_b1": (1, replace(EXPECTED["frozen_layer"], limit=_FROM_START)),
    "bf16w": (1, EXPECTED["bf16_weights"]),
    "labelshift": (1, EXPECTED["label_shift"]),
    "adamw_wd0_const": (1, EXPECTED["no_decay"]),
    "adamw_wd01_const": (1, EXPECTED["no_decay"]),
    "fail_druidowm_gpt2_jnyhr7aj": (800, Expected(800, ("train_heldout_gap", "slow_drift"))),
    "fail_finetune_overfit_overconfident_30ep": (
        401, Expected(ANY_STEP, ("train_heldout_gap", "slow_drift"))),
    "fail_s5_adamw_wd001_s2_never_groks": (1, Expected(20_000, ("norm_blowup",), r"decay|norm")),
    "plateau_modadd97_adamw_wd001_init3_s1": (1, Expected(12_000, ("norm_blowup",), r"decay|norm")),
    "grok_modadd97_adamw_wd0_s2_norm_x20": (1, Expected(19_000, ("norm_blowup",), r"decay|norm")),
    # By the numbers: the rows at which 56,000 samples had been seen, 64 at a step.
    "fail_mlperf51_cisco_llama31_8b": (875, Expected(50, ("loss_spike", "divergence"))),
    "fail_verl_opd_i80f2v90": (3, Expected(100, ("answers_drift", "overconfidence"))),
}  # fmt: skip


@cache
def split() -> dict[str, Any]:
    """The committed split."""
    return tomllib.loads((BENCH / "split.toml").read_text())


def half_of(source: str) -> str:
    """Which half a source's series belong to."""
    return "development" if source in split()["development"] else "judgement"


@cache
def sources(manifest: Path) -> dict[str, str]:
    """Repository by file name, from a manifest's tables; "same" is that of the row above."""
    found: dict[str, str] = {}
    last = ""
    for line in manifest.read_text().splitlines() if manifest.exists() else ():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 3 or not re.match(r"[a-z]", cells[0]):
            continue
        place = next((cell for cell in cells[1:3] if re.match(r"[\w.-]+/[\w.-]+ ?[@:]", cell)), "")
        last = place.split(" ")[0] or last
        for name in re.split(r"[ /]+", cells[0].partition(" (")[0]):
            found[name] = last
    return found


def source_of(path: Path) -> str:
    """The repository a recorded file comes from; else the second word of its name."""
    if path.parent.name == "zoo":
        return RECORDED_ZOO
    name = path.name.partition(".")[0]
    for folder in list(path.parents)[:4]:
        known = sources(folder / "MANIFEST.md")
        if name in known:
            return known[name]
    return name.split("_")[1]


def is_sound(name: str, source: str) -> bool:
    """By the file's name, as the manifests have it."""
    if source == RECORDED_ZOO:
        return name.startswith(SOUND) or name in SOUND_ZOO
    return name.startswith(SOUND)


def recorded(paths: Sequence[Path]) -> Iterator[Case]:
    """Recorded runs as they are; those nobody can tell of ("unknown") are left out."""
    for path in paths:
        name, source = path.name.partition(".")[0], source_of(path)
        if name.startswith("unknown"):
            continue
        log = _log_of_file(path)
        if not log:
            continue
        steps = sum(len(frame.steps) for entry in log for frame in entry.frames)
        half = half_of(source)
        if is_sound(name, source):
            yield Case(name, source, half, "recorded", lambda log=log: log, steps)
            continue
        onset, expected = RECORDED.get(name, (0, None))
        yield Case(name, source, half, "recorded", lambda log=log: log, max(onset - 1, 0),
                   onset, expected)  # fmt: skip


def _log_of_file(path: Path) -> list[LogEntry]:
    """As ``watchkeeper import`` would take it in; nothing where it could not."""
    try:
        with path.open("rb") as stream:
            return list(imported_entries(read_log(stream), path.name.partition(".")[0]))
    except WatchkeeperError:
        return []


def spliced(paths: Sequence[Path], places: Sequence[float] = ()) -> Iterator[Case]:
    """Every failure's shape at every place of the healthy histories that are long enough.

    ``places``: at these instead, as shares of the history; curves are frozen at three always.
    """
    for path in paths:
        name, source = path.name.partition(".")[0], source_of(path)
        if not name.startswith("healthy") or name in SAME_RUN_TWICE:
            continue
        rows = read_rows(path)
        for shape in splices.SHAPES:
            for share in places or splices.POSITIONS:
                made = splices.splice(rows, shape, share)
                if made is not None:
                    yield _splice_case(f"{name}, {shape.name} at {share}", source, shape, *made)
        yield from _frozen_cases(name, source, rows)


def _splice_case(
    name: str, source: str, shape: splices.Shape, before: int, onset: int, rows: list[Row]
) -> Case:
    having = [row.step for row in rows if "loss/train" in row.values]
    last = having[min(before + shape.limit, len(having) - 1)]
    with_gradient = any("grad_norm/total" in row.values for row in rows)
    expected = Expected(
        shape.limit, shape.caught_by, re.escape(shape.cause) if with_gradient else ""
    )
    # The same rows lie before the onset of every shape at this place: they count once.
    healthy = sum(row.step < onset for row in rows) if shape is splices.SHAPES[0] else 0
    return Case(name, source, half_of(source), shape.name, lambda: entries(rows), healthy, onset,
                expected, last, _shows(rows, onset, last))  # fmt: skip


def _shows(rows: list[Row], onset: int, last: int) -> bool:
    """Whether three of the points in time lie above all of the hundred before the onset."""
    losses = [(row.step, row.values["loss/train"]) for row in rows if "loss/train" in row.values]
    before = [loss for step, loss in losses if step < onset][-LOOKED_BACK:]
    after = [loss for step, loss in losses if onset <= step <= last]
    return sum(loss > max(before, default=0.0) for loss in after) >= MUST_STAND_OUT


def _frozen_cases(name: str, source: str, rows: list[Row]) -> Iterator[Case]:
    for key, fewest in FEWEST_TO_FREEZE.items():
        if sum(key in row.values for row in rows) < fewest:
            continue
        for share in FROZEN_AT:
            onset, changed = splices.frozen(rows, key, share)
            # Only what follows the onset is new: the healthy part is judged with the run itself.
            yield Case(f"{name}, {key} frozen at {share}", source, half_of(source),
                       f"frozen {key}", lambda changed=changed: entries(changed), 0, onset,
                       Expected(ANY_STEP, ("loss_plateau",)), rows[-1].step)  # fmt: skip


def zoo(runs: Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]) -> Iterator[Case]:
    """Runs of the zoo with their truth; the seed tells the half."""
    judged = split()["zoo_judgement_seeds"]
    for name, truth, batches in runs:
        half = "judgement" if (truth["seed"] % 2 == 1) == (judged == "odd") else "development"
        onset = truth["onset"]
        healthy = truth["steps"] if onset is None else onset - 1
        yield Case(name, f"{FRESH_ZOO} {truth['fault']}", half, "zoo",
                   lambda batches=batches: list(log_of(batches)), healthy, onset,
                   EXPECTED.get(truth["fault"]))  # fmt: skip


def kept(folder: Path) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Runs of the zoo that lie in a folder, with their truth."""
    for path in sorted(folder.glob("*.wire.jsonl*")):
        truth = folder / f"{path.name.partition('.wire')[0]}.truth.json"
        if truth.exists():
            yield truth.name.partition(".")[0], json.loads(truth.read_text()), read_batches(path)
