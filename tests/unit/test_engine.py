"""The engine on scripted judges: what is told, to whom not, and what a stranger's bug may do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from monitor.detectors.base import (
    Detector,
    Evidence,
    Hold,
    RunFacts,
    Severity,
    StepFrame,
    Verdict,
)
from monitor.domain.ids import alert_id, message_id
from monitor.domain.log import LogEntry
from monitor.services.judging import REMIND_AFTER_S, DetectionEngine, Effect
from tests.fixtures.traces import Row, entries

LEVELS: dict[int, Severity] = {1: "info", 2: "warning", 3: "critical"}


class Scripted(Detector):
    """Bad at the severity its series says (0: calm, negative: a bug)."""

    name: ClassVar[str] = "scripted"
    title: ClassVar[str] = "scripted"
    needs: ClassVar[tuple[str, ...]] = ("level",)
    hold: ClassVar[Hold] = Hold(k=1, m=1, calm=2)

    def __init__(self, facts: RunFacts, params: Any = None) -> None:
        self.seen: list[int] = []

    def update(self, frame: StepFrame) -> list[Verdict]:
        self.seen.append(frame.step)
        level = int(frame.values["level"])
        if level < 0:
            raise ZeroDivisionError
        judgement: Any = "bad" if level else "calm"
        severity = LEVELS.get(level, "info")
        return [
            Verdict(
                self.name, "", judgement, severity, "said", frame.step, frame.t, frame.attempt,
                "scripted", Evidence("said", 1, onset_step=frame.step) if level else None,
            )
        ]  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: dict[str, Any]) -> None:
        self.seen = list(state["seen"])


class Steady(Scripted):
    name: ClassVar[str] = "steady"


def log_of(levels: Sequence[int], first: int = 1, **options: Any) -> list[LogEntry]:
    rows = [Row(first + i, 100.0 + i, {"level": float(level)}) for i, level in enumerate(levels)]
    return entries(rows, cuts=range(len(rows)), **options)


def effects_of(
    log: Sequence[LogEntry], engine: DetectionEngine | None = None
) -> list[Effect]:  # fmt: skip
    engine = engine or DetectionEngine("run", {"scripted": Scripted})
    return [effect for entry in log for effect in engine.feed(entry)]


def told(effects: Sequence[Effect]) -> list[str]:
    return [effect.tell for effect in effects if effect.tell]


def changes(effects: Sequence[Effect]) -> list[tuple[str, str, str]]:
    return [(e.change.old, e.change.new, e.change.reason) for e in effects if e.change]


def test_information_is_an_alert_but_never_a_message() -> None:
    effects = effects_of(log_of([0, 1, 1, 0, 0]))
    assert changes(effects) == [("quiet", "firing", "said"), ("firing", "resolved", "said")]
    assert told(effects) == []


def test_information_that_gets_serious_is_told_then() -> None:
    effects = effects_of(log_of([1, 1, 2, 2, 0, 0]))
    assert told(effects) == ["opened", "resolved"]
    assert ("firing", "firing", "worse") in changes(effects)


def test_worse_is_not_a_second_opening() -> None:
    assert told(effects_of(log_of([2, 3, 3, 2, 3, 0, 0]))) == ["opened", "resolved"]


def later(log: Sequence[LogEntry], at: Callable[[int], float]) -> list[LogEntry]:
    return [replace(entry, at=at(index)) for index, entry in enumerate(log)]


def test_a_reminder_after_six_hours_only_if_worse() -> None:
    hours = lambda index: index * REMIND_AFTER_S / 2  # noqa: E731
    assert told(effects_of(later(log_of([2] * 9), hours))) == ["opened"]
    assert told(effects_of(later(log_of([2, 3, 3, 3, 3, 3, 3, 3]), hours))) == [
        "opened", "reminder",
    ]  # fmt: skip


def test_no_reminder_of_what_somebody_has_seen() -> None:
    engine = DetectionEngine("run", {"scripted": Scripted})
    log = later(log_of([2, 3, 3, 3, 3]), lambda index: index * REMIND_AFTER_S)
    (opened,) = engine.feed(log[0])
    note = {"alert": opened.alert.id, "by": "ada", "note": ""}
    seen = engine.feed(LogEntry("run", 99, "acknowledge", 1.0, note=note))
    assert seen[0].alert.state == "acknowledged"
    assert told([e for entry in log[1:] for e in engine.feed(entry)]) == []


def test_a_note_about_an_alert_of_old_changes_nothing() -> None:
    engine = DetectionEngine("run", {"scripted": Scripted})
    effects_of(log_of([2, 0, 0, 2]), engine)
    old = alert_id("run", "scripted", "", 1)
    note = LogEntry("run", 99, "resolve", 1.0, note={"alert": old, "by": "ada"})
    assert engine.feed(note) == []


def test_one_judge_that_breaks_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    engine = DetectionEngine("run", {"scripted": _broken(), "steady": Steady})
    effects = effects_of(log_of([0, 2, 2]), engine)
    assert {effect.alert.detector for effect in effects} == {"steady"}
    assert "detector scripted failed at step 1" in caplog.text
    assert engine.snapshot()["broken"] == {"scripted": "ZeroDivisionError"}


def _broken() -> type[Scripted]:
    class Broken(Scripted):
        def update(self, frame: StepFrame) -> list[Verdict]:
            raise ZeroDivisionError

    return Broken


def test_a_judge_of_another_version_begins_anew_and_its_alert_goes_on() -> None:
    engine = DetectionEngine("run", {"scripted": Scripted})
    effects_of(log_of([2]), engine)

    class Newer(Scripted):
        version: ClassVar[int] = 2

    successor = DetectionEngine("run", {"scripted": Newer})
    assert successor.restore(json.loads(json.dumps(engine.snapshot())))
    effects = effects_of(log_of([0, 0], first=5, attempt="a0")[0:], successor)
    assert told(effects) == ["resolved"]


def test_a_memory_that_does_not_fit_begins_anew_and_the_others_keep_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = DetectionEngine("run", {"scripted": Scripted, "steady": Steady})
    effects_of(log_of([2, 2]), engine)
    state = json.loads(json.dumps(engine.snapshot()))
    state["detectors"]["scripted"]["state"] = {"of another shape": 1}
    successor = DetectionEngine("run", {"scripted": Scripted, "steady": Steady})
    assert successor.restore(state)
    assert "detector scripted of run begins anew" in caplog.text
    remembered = successor.snapshot()["detectors"]
    assert remembered["scripted"]["state"] == {"seen": []}
    assert remembered["steady"]["state"] == {"seen": [1, 2]}
    assert told(effects_of(log_of([0, 0], first=3, attempt="a0"), successor)) == ["resolved"] * 2


def test_a_judge_that_failed_judges_again_in_its_next_version() -> None:
    engine = DetectionEngine("run", {"scripted": _broken()})
    effects_of(log_of([2]), engine)
    same = DetectionEngine("run", {"scripted": _broken()})
    assert same.restore(engine.snapshot())
    assert same.broken == {"scripted": "ZeroDivisionError"}

    class Newer(Scripted):
        version: ClassVar[int] = 2

    mended = DetectionEngine("run", {"scripted": Newer})
    assert mended.restore(engine.snapshot())
    assert told(effects_of(log_of([2], first=2, attempt="a0"), mended)) == ["opened"]


def test_a_snapshot_of_another_engine_is_refused() -> None:
    assert DetectionEngine("run", {}).restore({"engine": 0}) is False
    assert DetectionEngine("run", {}).restore({}) is False


def test_ids_name_the_same_thing_for_ever() -> None:
    """Written down: a change of these would tell everything twice after an update."""
    alert = alert_id("run", "stale_data", "", 1)
    assert alert == "9f21f954d8a15826990de2d0b0f38cc7"
    assert alert != alert_id("run", "stale_data", "", 2)
    message = message_id(alert, "webhook", "opened", 0)
    assert message == "msg_235e271ec905516eb4378f05c715fffa"
    assert message != message_id(alert, "webhook", "resolved", 0)


def test_late_values_are_not_judged_again() -> None:
    engine = DetectionEngine("run", {"scripted": Scripted})
    effects_of(log_of([0, 0, 0, 0]), engine)
    late = replace(log_of([3], first=2)[0], seq=77, records=())
    assert engine.feed(late) == []


def test_two_sources_are_waited_for() -> None:
    engine = DetectionEngine("run", {"scripted": Scripted})
    first, second = log_of([2, 2], first=1)
    other = replace(second, source="s1", frames=(), through_step=0)
    engine.feed(replace(first, through_step=0))
    engine.feed(other)
    assert engine.feed(second) == []  # s1 has not said that it is through
    opened = engine.feed(replace(other, through_step=2))
    assert [effect.alert.opened_step for effect in opened if effect.change] == [1]


def test_a_silent_source_is_given_up_after_two_ticks() -> None:
    engine = DetectionEngine("run", {"scripted": Scripted})
    first, second = log_of([2, 2])
    engine.feed(replace(first, through_step=0))
    assert engine.feed(LogEntry("run", 50, "tick", 115.0)) == []
    assert told(engine.feed(LogEntry("run", 51, "tick", 130.0))) == ["opened"]


def test_kinds_of_run_a_judge_is_not_for() -> None:
    log = log_of([2], facts={"run_kind": "rl"})
    assert effects_of(log) == []
