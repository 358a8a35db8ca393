"""All judges together over a resumed run and over a run that stands still."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from monitor.domain.alert import Alert
from monitor.domain.log import Column, ColumnFrame, LogEntry
from monitor.services.judging import DetectionEngine
from trainer_hooks.wire import AttemptStart, RunStart

LOUD = ("warning", "critical")
RESUMED_AT = 401


def piece(attempt: str, ordinal: int, first: int, losses: Sequence[float]) -> LogEntry:
    """One attempt from step ``first`` on, a step a second, as one batch."""
    steps = np.arange(first, first + len(losses), dtype=np.int64)
    columns = {"loss/train": Column(np.array(losses)), "lr/all": Column(np.full(len(losses), 1e-3))}
    frame = ColumnFrame(steps, 1000.0 * ordinal + steps.astype(np.float64), columns)
    records = (AttemptStart(ordinal, first, 0.0),)
    if ordinal == 0:
        records = (RunStart("r", 0.0, optimizer="AdamW"), *records)  # type: ignore[assignment]
    return LogEntry(
        "r", ordinal + 1, "batch", 1000.0 * (ordinal + 1), attempt, "s", 0, int(steps[-1]),
        (frame,), records,
    )  # fmt: skip


def noisy(level: float, n: int, seed: int, share: float = 0.01) -> list[float]:
    source = random.Random(seed)
    return [level * source.gauss(1.0, share) for _ in range(n)]


def told(*entries: LogEntry) -> dict[str, list[Alert]]:
    """Alerts as they ended up, loud ones, by detector; their evidence is that of the opening."""
    engine, alerts = DetectionEngine("r"), {}
    for pos, entry in enumerate(entries, start=1):
        for effect in engine.feed(replace(entry, pos=pos)):
            first = alerts.get(effect.alert.id, effect.alert)
            alerts[effect.alert.id] = replace(effect.alert, evidence=first.evidence)
    assert engine.broken == {}
    found: dict[str, list[Alert]] = {}
    for alert in alerts.values():
        if alert.severity in LOUD:
            found.setdefault(alert.detector, []).append(alert)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_jump_at_the_resume_is_one_alert_that_names_both_and_goes_with_it(seed: int) -> None:
    back = [3.4 - 1.3 * step / 40 for step in range(40)]
    again = [value * random.Random(seed + 9).gauss(1.0, 0.002) for value in back]
    found = told(
        piece("a0", 0, 1, noisy(2.1, 600, seed)),
        piece("a1", 1, RESUMED_AT, again + noisy(2.1, 300, seed + 1)),
    )
    assert list(found) == ["resume_jump"]
    (alert,) = found["resume_jump"]
    assert alert.attempt == "a1"
    assert alert.onset_step == RESUMED_AT
    assert (alert.state, alert.resolved_reason != "run_ended") == ("resolved", True)
    assert alert.resolved_step is not None
    assert alert.resolved_step - RESUMED_AT <= 50
    now, before = map(float, re.findall(r"\d\.\d+", alert.evidence["summary"]))
    assert before == pytest.approx(2.1, abs=0.02)
    assert 3.2 <= now <= 3.4, alert.evidence["summary"]


@pytest.mark.parametrize("seed", range(3))
def test_what_the_old_attempt_was_used_to_is_not_held_against_the_new_one(seed: int) -> None:
    """It goes on 1.3 higher: told at the resume, and by no rule that is used to the old one."""
    found = told(
        piece("a0", 0, 1, noisy(2.1, 600, seed)),
        piece("a1", 1, RESUMED_AT, noisy(3.4, 900, seed + 1)),
    )
    alerts = found.pop("resume_jump")
    assert [alert.onset_step for alert in alerts] == [RESUMED_AT]
    assert set(found) <= {"loss_plateau"}, found  # it does stand still, at its own level
    for alert in found.get("loss_plateau", ()):
        assert alert.opened_step >= RESUMED_AT + 450


def test_a_loss_that_never_moved_is_told_within_five_hundred_points_and_its_drop_ends_it() -> None:
    stuck = noisy(5.81, 1000, 4, share=0.01 / 5.81)
    fall = [5.81 - (5.81 - 3.8) * step / 200 for step in range(200)]
    found = told(piece("a0", 0, 1, stuck + fall + noisy(3.8, 900, 5)))
    (alert,) = found["loss_plateau"]
    assert alert.opened_step <= 530
    assert alert.resolved_step is not None
    assert 1000 < alert.resolved_step <= 1500, alert.resolved_step


@pytest.mark.parametrize("seed", range(3))
def test_half_a_percent_a_thousand_steps_under_three_percent_of_noise_is_left_alone(
    seed: int,
) -> None:
    source = random.Random(seed)
    falling = [4.0 * (1 - 0.005 * step / 1000) * source.gauss(1.0, 0.03) for step in range(5000)]
    assert told(piece("a0", 0, 1, falling)) == {}
