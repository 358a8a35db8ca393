"""Sampling windows of a run, and what each did to the training beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.domain.interference import StepRow, WindowVerdict, judge_window, split
from monitor.services.reading import Curve, Reading
from monitor.services.views import WindowView
from monitor.storage.base import Database
from trainer_hooks.wire import Phase

STEP, WAIT, LOSS = "step_s", "data_wait_s", "loss/train"
STEPS_BEFORE = 100
STEPS_AFTER = 20
MOST_WINDOWS = 20
MOST_STEPS = 4_000


@dataclass(frozen=True, slots=True)
class _Told:
    """A finished sampling phase."""

    phase: Phase
    end_step: int
    end_at: float


def windows(database: Database, reading: Reading, run: str) -> list[WindowView]:
    """The latest finished windows, oldest first, with what each did to the steps around it."""
    with database.read() as uow:
        phases = [phase for _, phase in uow.events.phases(run) if phase.name == "sampling"]
    told = [
        _Told(phase, phase.end_step, phase.end_at)
        for phase in phases
        if phase.end_step is not None and phase.end_at is not None
    ]
    latest = sorted(told, key=lambda one: one.phase.begin_at)[-MOST_WINDOWS:]
    return [_view(one, _judged(reading, run, one, told)) for one in latest]


def _judged(reading: Reading, run: str, one: _Told, others: list[_Told]) -> WindowVerdict:
    first = max(0, one.phase.begin_step - 2 * STEPS_BEFORE)
    last = min(one.end_step + 3 * STEPS_AFTER, first + MOST_STEPS)
    found = reading.points(
        run, [STEP, WAIT, LOSS], from_step=first, to_step=last, max_points=2 * MOST_STEPS
    )
    before, inside, after = split(_rows(found.series), one.phase.begin_at, one.end_at)
    clean = [row for row in before if not any(_holds(o, row) for o in others if o is not one)]
    return judge_window(clean[-STEPS_BEFORE:], inside, after[:STEPS_AFTER])


def _holds(other: _Told, row: StepRow) -> bool:
    return other.phase.begin_at < row.t and row.t - row.step_s < other.end_at


def _rows(curves: list[Curve]) -> list[StepRow]:
    """Steps that have a time, from the curves' owned parts."""
    values: dict[str, dict[int, float]] = {STEP: {}, WAIT: {}, LOSS: {}}
    times: dict[int, float] = {}
    for curve in curves:
        if curve.ghost or curve.resolution != "raw":
            continue
        good = np.isfinite(curve.values)
        steps = curve.steps[good].tolist()
        values[curve.key].update(zip(steps, curve.values[good].tolist(), strict=True))
        times.update(zip(steps, curve.times[good].tolist(), strict=True))
    return [
        StepRow(step, times[step], step_s, values[WAIT].get(step), values[LOSS].get(step))
        for step, step_s in sorted(values[STEP].items())
        if step_s > 0
    ]


def _view(one: _Told, found: WindowVerdict) -> WindowView:
    phase = one.phase
    return WindowView(
        phase.phase_id, phase.text or "sampling in the loop", phase.path, phase.begin_step,
        phase.begin_at, one.end_step, one.end_at, found.effect, found.hurt, found.lasts,
        found.words(), found.step_before_s if found.effect != "unknown" else None,
        found.step_inside_s, found.step_after_s, found.wait_before_s, found.wait_inside_s,
        found.loss_change,
    )  # fmt: skip
