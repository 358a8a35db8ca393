"""Real failures spliced into healthy histories: the real noise stays, and the onset is exact.

The published windows of real failures are 3 to 11 rows long: alone they tell nothing of a rule
that knows a run by its past. Their shape - the loss over its level before, and the gradient norm
too - is laid on healthy runs at five places; what lies before the onset counts as healthy.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from monitor.detectors.robust import median
from tests.fixtures.traces import Row, entries, judge, read_rows

POSITIONS = (0.2, 0.35, 0.5, 0.65, 0.8)
BEFORE, AFTER = 900, 1600
"""Points of the history that are judged, before and after the onset."""
FEWEST = 500
SMOOTH_POINTS = 50
"""A batch loss is frozen at its running mean, not at one lucky batch."""
LOSSES = ("loss/train", "loss/heldout", "loss/probe")


@dataclass(frozen=True, slots=True)
class Shape:
    """``loss``, ``grad``: factors on the points from the onset on; afterwards back to ``rest``
    (1: as before) with a time constant of ``back`` points, or a creep of ``creep`` a step.
    ``caught_by`` within ``limit`` points. ``cause``: words of the cause to be ranked first."""

    name: str
    loss: tuple[float, ...]
    grad: tuple[float, ...] = ()
    rest: float = 1.0
    back: float = 8.0
    creep: float = 0.0
    caught_by: tuple[str, ...] = ("loss_spike", "divergence")
    limit: int = 50
    cause: str = ""

    def factor(self, since: int, steps: int) -> float:
        if self.creep:
            return 1.0 + min(self.creep * steps, 0.5)
        return _factor(self.loss, since, self.rest, self.back)

    def grad_factor(self, since: int) -> float:
        return _factor(self.grad, since, 1.0, self.back) if self.grad else 1.0


def _factor(given: Sequence[float], since: int, rest: float, back: float) -> float:
    if since < len(given):
        return given[since]
    return rest + (given[-1] - rest) * math.exp(-(since - len(given) + 1) / back)


SHAPES = (
    Shape(
        "bloom176b spike",
        (1.010, 1.180, 1.019, 1.067, 2.319, 1.588, 1.461, 1.276),
        (3.9, 9.9, 65.6, 600.0, 3968.0, 1460.0, 1567.0, 2687.0),
        cause="gradients grew before the loss did",
    ),
    Shape("bigscience 13b spike", (2.650, 3.145, 2.762, 2.595, 2.471), back=17.0),
    Shape("bigscience 104b divergence", (1.772,), (2.2,), rest=1.110, back=6.0),
    Shape("bigscience 104b spike", (1.017, 2.518), (20.3, 19.7), back=60.0),
    Shape("bigscience 104b overflow", (1.641, 1.638, 1.648, 1.653, 1.650, 1.537, 1.552), rest=1.55),
    Shape(
        "creep of 0.01 % a step", (), creep=1e-4, caught_by=("slow_drift", "divergence"), limit=1500
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tried:
    """One splice: whether and when it was caught, and what was told before it began."""

    shape: str
    caught: bool
    delay_steps: int | None
    onset_off: float | None
    cause_right: bool | None
    early: int
    healthy_steps: int


def splice(rows: Sequence[Row], shape: Shape, share: float) -> tuple[int, int, list[Row]] | None:
    """Onset index and step, and the rows about it; None where the history is too short."""
    having = [index for index, row in enumerate(rows) if "loss/train" in row.values]
    if len(having) < FEWEST:
        return None
    onset = int(share * len(having))
    first, last = max(onset - BEFORE, 0), min(onset + AFTER, len(having) - 1)
    since = {index: number - onset for number, index in enumerate(having)}
    out, now = [], -1
    for index in range(having[first], having[last] + 1):
        now = since.get(index, now)
        row = rows[index]
        steps = row.step - rows[having[onset]].step
        out.append(_laid_on(row, shape, now, steps) if now >= 0 else row)
    if shape.creep and not _shows(out, onset - first):
        return None  # the healthy fall hides it: nothing rises that could be seen to
    return onset - first, rows[having[onset]].step, out


def _shows(rows: Sequence[Row], before: int) -> bool:
    """Whether the loss ends 2 % above what it was about the onset."""
    losses = [row.values["loss/train"] for row in rows if "loss/train" in row.values]
    about = losses[max(before - 50, 0) : before + 50]
    return median(losses[-100:]) > 1.02 * median(about)


def _laid_on(row: Row, shape: Shape, since: int, steps: int) -> Row:
    values = dict(row.values)
    for key in LOSSES:
        if key in values:
            values[key] *= shape.factor(since, steps)
    if "grad_norm/total" in values:
        values["grad_norm/total"] *= shape.grad_factor(since)
    return replace(row, values=values)


def try_all(rows: Sequence[Row], shapes: Sequence[Shape] = SHAPES) -> list[Tried]:
    """Every shape at every place of one healthy history."""
    tried = []
    for shape in shapes:
        for share in POSITIONS:
            made = splice(rows, shape, share)
            if made is not None:
                tried.append(_judge(shape, *made))
    return tried


def _judge(shape: Shape, before: int, onset: int, rows: Sequence[Row]) -> Tried:
    having = [row.step for row in rows if "loss/train" in row.values]
    limit = having[min(before + shape.limit, len(having) - 1)]
    told = judge(entries(rows))
    early = [t for t in told if t.opened < onset and t.severity != "info"]
    hits = [t for t in told if t.detector in shape.caught_by and onset <= t.opened <= limit]
    healthy = onset - rows[0].step
    if not hits:
        return Tried(shape.name, False, None, None, None, len(early), healthy)
    hit = min(hits, key=lambda one: one.opened)
    off = abs(hit.onset - onset) / max(rows[-1].step - rows[0].step, 1)
    right = None
    if shape.cause and any("grad_norm/total" in row.values for row in rows):
        right = shape.cause in hit.cause
    return Tried(shape.name, off <= 0.1, hit.opened - onset, off, right, len(early), healthy)


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


def figures(tried: Sequence[Tried]) -> dict[str, object]:
    """Recall, delays, right causes and false alarms before the onsets, as JSON values."""
    delays = sorted(one.delay_steps for one in tried if one.delay_steps is not None)
    named = [one.cause_right for one in tried if one.cause_right is not None]
    return {
        "splices": len(tried),
        "recall": sum(one.caught for one in tried) / max(len(tried), 1),
        "median_delay_steps": delays[len(delays) // 2] if delays else None,
        "right_cause_share": sum(named) / max(len(named), 1),
        "alarms_before_onset": sum(one.early for one in tried),
        "misses": sorted({one.shape for one in tried if not one.caught}),
    }


def lines_of(tried: Sequence[Tried]) -> list[str]:
    """A line for each shape: found, median delay, onset error."""
    lines = []
    for name in dict.fromkeys(one.shape for one in tried):
        mine = [one for one in tried if one.shape == name]
        delays = sorted(one.delay_steps for one in mine if one.delay_steps is not None)
        middle = delays[len(delays) // 2] if delays else None
        lines.append(
            f"    {name}: {sum(one.caught for one in mine)} of {len(mine)}, median delay "
            f"{middle} steps, {sum(one.early for one in mine)} alarms before the onset"
        )
    return lines


def main(arguments: Sequence[str]) -> None:
    """``python -m tests.bench.splices [FILE ...]``: without files, healthy ones of tests/runs."""
    runs = Path(__file__).parents[1] / "runs"
    paths = [Path(name) for name in arguments] or sorted(runs.glob("*/healthy_*.csv.gz"))
    tried: list[Tried] = []
    for path in paths:
        tried += (mine := try_all(read_rows(path)))
        sys.stdout.write("\n".join([path.name, *lines_of(mine)]) + "\n")
    sys.stdout.write("\n".join(["all", *lines_of(tried)]) + "\n")
    sys.stdout.write(json.dumps(figures(tried)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
