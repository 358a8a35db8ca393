"""A validation loss is said after its step: it is judged all the same, once, over restarts too."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from monitor.domain.log import Column, ColumnFrame, LogEntry
from monitor.services.backtest import chosen_detectors
from monitor.services.judging import DetectionEngine, Effect
from tests.fixtures.traces import Row, frame_of
from trainer_hooks.wire import AttemptStart, RunStart

EVERY = 50
FAULT = 301
LAST = 800


def entry(pos: int, step: int, frame: ColumnFrame, *, first: bool = False) -> LogEntry:
    told = (RunStart("run", 0.0), AttemptStart(0, 1, 0.0)) if first else ()
    return LogEntry(
        "run", pos, "batch", float(step), "a0", "s0", pos, step, (frame,), told
    )  # fmt: skip


def log_of(jump: float) -> list[LogEntry]:
    """Each step leaves at once and is complete; its validation loss comes in a batch after it."""
    noise, log = random.Random(1), []
    for step in range(1, LAST):
        loss = 2.0 + 4.0 * (step + 20) ** -0.5
        values = {"loss/train": loss * (1 + noise.gauss(0.0, 0.01))}
        if step % EVERY == 0:
            values["loss/probe"] = loss + noise.gauss(0.0, 0.003)
        log.append(entry(len(log), step, frame_of([Row(step, float(step), values)]), first=not log))
        if step % EVERY == 0:
            held = loss + noise.gauss(0.0, 0.003) + (jump if step >= FAULT else 0.0)
            column = {"loss/heldout": Column(np.array([held]), None)}
            late = ColumnFrame(np.array([step]), np.array([float(step)]), column)
            log.append(entry(len(log), step, late))
    return log


def judge(log: list[LogEntry], replaced: frozenset[int] = frozenset()) -> list[Effect]:
    engine, effects = DetectionEngine("run", chosen_detectors(["train_heldout_gap"])), []
    for index, one in enumerate(log):
        if index in replaced:
            state = json.loads(json.dumps(engine.snapshot(), allow_nan=False))
            engine = DetectionEngine("run", chosen_detectors(["train_heldout_gap"]))
            assert engine.restore(state)
        effects += engine.feed(one)
    return effects


def test_a_validation_that_parts_from_the_probe_is_told() -> None:
    alert = judge(log_of(0.06))[0].alert
    assert (alert.subject, alert.severity) == ("evaluation", "warning")
    assert abs(alert.onset_step - FAULT) <= 1
    assert alert.opened_step <= FAULT + 3 * EVERY
    assert "the evaluation changed, not the model" in alert.evidence["causes"][0]["text"]
    assert judge(log_of(0.0)) == []


def test_a_judge_replaced_between_step_and_validation_says_the_same() -> None:
    log = log_of(0.06)
    between = frozenset(i for i, one in enumerate(log) if "loss/heldout" in one.frames[0].columns)
    after = frozenset(i + 1 for i in between)
    assert judge(log, between) == judge(log, after) == judge(log)


@pytest.mark.parametrize("slope", [2e-5, -4e-5])
def test_other_distributions_part_slowly_and_nobody_is_told(slope: float) -> None:
    log = []
    for one in log_of(0.0):
        columns = dict(one.frames[0].columns)
        if "loss/heldout" in columns:
            step = int(one.frames[0].steps[0])
            moved = columns["loss/heldout"].values + slope * step * (1 + math.sin(step / 90.0) / 20)
            columns["loss/heldout"] = Column(moved, None)
        frame = ColumnFrame(one.frames[0].steps, one.frames[0].times, columns)
        log.append(entry(len(log), int(frame.steps[0]), frame, first=not log))
    assert judge(log) == []
