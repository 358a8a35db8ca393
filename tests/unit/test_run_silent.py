"""Dead, slow or done: a clock, a server that ticks, and what came from the trainer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from monitor.detectors import load_detector
from monitor.domain.log import LogEntry
from monitor.services.judging import DetectionEngine, Effect
from tests.fixtures.traces import Row, frame_of
from trainer_hooks.wire import AttemptStart, Heartbeat, Phase, Record, RunEnd, RunStart

TICK_S = 15.0


class Log:
    """A run's log as the server would write it, by the server's clock (seconds from 0)."""

    def __init__(self, *, step_s: float = 1.0) -> None:
        self.entries: list[LogEntry] = []
        self.step_s = step_s
        self.step = -1
        self.attempt = 0
        self.now = 0.0
        self._ticked = 0.0
        self.say(RunStart("run", 0.0), AttemptStart(0, 0, 0.0))

    def _append(self, kind: Any, **more: Any) -> None:
        self.entries.append(LogEntry("run", len(self.entries) + 1, kind, self.now, **more))

    def say(self, *records: Record, rows: Sequence[Row] = ()) -> None:
        frames = (frame_of(rows),) if rows else ()
        through = self.step if self.step >= 0 else None
        self._append(
            "batch", attempt=f"a{self.attempt}", source="s0", seq=len(self.entries),
            through_step=through, frames=frames, records=records,
        )  # fmt: skip

    def pass_(self, seconds: float, *, steps: bool = False, beats: bool = False) -> None:
        """Time goes by, with steps and heartbeats, or without; the server ticks."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            if self.now - self._ticked >= TICK_S:
                self._ticked = self.now
                self._append("tick", note={"interval_s": TICK_S})
            if steps and self.now % self.step_s < 1.0:
                self.step += 1
                self.say(rows=[Row(self.step, self.now, {"step_s": self.step_s})])
            elif beats and self.now % 30 < 1.0:
                self.say(Heartbeat(self.now, self.step))

    def server_away(self, seconds: float) -> None:
        self.now += seconds
        self._ticked = self.now

    def judged(self, engine: DetectionEngine | None = None) -> list[Effect]:
        engine = engine or silent()
        return [effect for entry in self.entries for effect in engine.feed(entry)]


def silent() -> DetectionEngine:
    return DetectionEngine("run", {"run_silent": load_detector("run_silent")})


def changes(log: Log) -> list[tuple[str, str, str]]:
    """(new state, reason, severity) of each change."""
    return [
        (e.change.new, e.change.reason, e.alert.severity)
        for e in log.judged()
        if e.change is not None
    ]


def test_a_run_that_steps_and_beats_is_left_alone() -> None:
    log = Log()
    log.pass_(1200, steps=True)
    assert changes(log) == []


def test_silence_of_ninety_seconds_is_a_lost_run_and_one_alert() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.pass_(4000)
    assert changes(log) == [("firing", "lost", "critical")]
    opened = next(e.alert for e in log.judged() if e.change)
    assert 90 <= opened.opened_at - 300 <= 120
    assert opened.onset_step == log.step
    assert opened.onset_at == 300.0
    assert "not even a heartbeat" in str(opened.evidence["summary"])


def test_what_comes_back_resolves_it() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.pass_(600)
    log.pass_(400, steps=True)
    assert changes(log) == [
        ("firing", "lost", "critical"),
        ("resolved", "heard_again", "critical"),
    ]


def test_heartbeats_without_steps_are_a_stall_that_gets_worse() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.pass_(3000, beats=True)
    log.pass_(30, steps=True)
    assert changes(log) == [
        ("firing", "stalled", "warning"),
        ("firing", "worse", "critical"),
        ("resolved", "steps_again", "critical"),
    ]
    opened = next(e.alert for e in log.judged() if e.change)
    assert 300 <= opened.opened_at - 300 <= 330


def test_slow_steps_have_ten_of_their_own_time() -> None:
    log = Log(step_s=60.0)
    log.pass_(1200, steps=True, beats=True)
    log.pass_(500, beats=True)  # above five minutes, below ten steps
    assert changes(log) == []
    log.pass_(300, beats=True)
    assert [new for new, _, _ in changes(log)] == ["firing"]


@pytest.mark.parametrize("name", ["evaluation", "checkpoint", "sampling"])
def test_a_declared_phase_may_take_long(name: Any) -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.say(Phase("p", name, log.step, log.now))
    log.pass_(3000, beats=True)
    log.say(Phase("p", name, log.step, log.now - 3000, log.step, log.now))
    log.pass_(200, beats=True)
    log.pass_(100, steps=True)
    assert changes(log) == []


def test_a_phase_that_nobody_ended_excuses_four_hours_only() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.say(Phase("p", "evaluation", log.step, log.now))
    log.pass_(4 * 3600 - 60, beats=True)
    assert changes(log) == []
    log.pass_(600, beats=True)
    (opened,) = [e.alert for e in log.judged() if e.change]
    assert "hangs in its evaluation" in str(opened.evidence["causes"])


@pytest.mark.parametrize("status", ["finished", "failed", "interrupted", "terminated"])
def test_an_end_that_was_declared_wins_for_ever(status: Any) -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.say(RunEnd(status, log.now, log.step))
    log.pass_(30 * 86_400 // 100)
    assert changes(log) == []


def test_a_lost_run_that_says_how_it_ended_is_closed_by_that() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.pass_(200)
    log.say(RunEnd("failed", log.now, log.step))
    log.pass_(2000)
    assert changes(log)[-1][0] == "resolved"
    assert len(changes(log)) == 2


def test_three_hours_without_the_server_are_nobodys_silence() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.pass_(70)
    log.server_away(3 * 3600)
    log.pass_(80)  # not yet a whole window after it is back
    assert changes(log) == []
    log.pass_(60)
    assert [new for new, _, _ in changes(log)] == ["firing"]


def test_a_clock_set_back_is_no_silence() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.now -= 7200.0
    log._ticked = log.now
    log.pass_(300, steps=True)
    assert changes(log) == []


def test_a_resume_ends_a_loss_and_begins_anew() -> None:
    log = Log()
    log.pass_(300, steps=True)
    log.pass_(900)
    log.attempt, log.step = 1, 199
    log.say(AttemptStart(1, 200, log.now))
    log.pass_(200, steps=True)
    assert [new for new, _, _ in changes(log)] == ["firing", "resolved"]


def test_a_judge_replaced_anywhere_says_the_same() -> None:
    log = Log()
    log.pass_(200, steps=True)
    log.pass_(700, beats=True)
    log.pass_(150, steps=True)
    log.pass_(200)
    engine, effects = silent(), []
    for index, entry in enumerate(log.entries):
        if index % 37 == 0:
            state = json.loads(json.dumps(engine.snapshot(), allow_nan=False))
            engine = silent()
            assert engine.restore(state)
        effects += engine.feed(replace(entry))
    assert effects == log.judged()
    assert len([e for e in effects if e.change]) == 3
