"""Recorded answers of real runs of the zoo, six days each, judged over the whole way of a log.

``tests/runs/answers/<fault>-<seed>.jsonl.gz`` holds one answer a line, as ``watchkeeper sample``
asks the checkpoints of steps 300 to 800 (``tests.fixtures.answer_days``); logarithms are rounded to
three places, token texts and entropies left out. The fault begins at step 301.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from monitor.detectors import load_detector
from monitor.domain.answer_metrics import measure, of_set
from monitor.domain.log import LogEntry
from monitor.services.judging import DetectionEngine
from trainer_hooks.wire import Answer, AttemptStart, RunStart

FOLDER = Path(__file__).resolve().parents[1] / "runs" / "answers"
ONSET = 301


def recorded(name: str) -> list[list[Answer]]:
    """The samplings of a run, oldest first."""
    lines = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines()
    days: dict[str, list[Answer]] = {}
    for line in lines:
        plain: dict[str, Any] = json.loads(line)
        days.setdefault(plain["sampling_id"], []).append(
            Answer(**({"text": "", "prompt": ""} | plain))
        )
    return list(days.values())


def told(samplings: list[list[Answer]]) -> list[Any]:
    """Alerts that opened, in order."""
    engine = DetectionEngine("run", {"answers_drift": load_detector("answers_drift")})
    start = (RunStart("r", 0.0), AttemptStart(1, 0, 0.0))
    entries = [LogEntry("run", 1, "batch", 0.0, "a0", "s", 1, 5000, (), start)]
    for pos, answers in enumerate(samplings, start=2):
        at, note = answers[0].at, {"bystander": True}
        entries.append(
            LogEntry("run", pos, "batch", at, "a0", "s", pos, None, (), tuple(answers), note)
        )
    effects = [effect for entry in entries for effect in engine.feed(entry)]
    return [e.alert for e in effects if e.change and e.change.new == "firing"]


def numbers(answers: list[Answer]) -> Any:
    return of_set([measure(one) for one in answers])


def test_one_that_learns_a_shard_by_heart_is_told_and_shows_what_happened() -> None:
    days = recorded("over_training-0")
    assert [len(answers) for answers in days] == [66] * 6
    first, last = numbers(days[0]), numbers(days[-1])
    assert last.confidence - first.confidence > 0.15
    assert last.reference_nll - first.reference_nll > 1.0
    (alert,) = told(days)
    assert alert.onset_step >= ONSET
    assert alert.opened_step <= 700
    assert "surer" in alert.evidence["summary"]
    assert "further off" in alert.evidence["summary"]


def test_a_healthy_one_gets_surer_because_it_learns_and_nothing_is_told() -> None:
    days = recorded("healthy-0")
    first, last = numbers(days[0]), numbers(days[-1])
    assert last.confidence - first.confidence > 0.02
    assert last.reference_nll < first.reference_nll - 0.1
    assert told(days) == []


def test_answers_that_shorten_are_told() -> None:
    days = recorded("short_answers-0")
    first, last = numbers(days[0]), numbers(days[-1])
    assert last.length < first.length / 2
    (alert,) = told(days)
    assert alert.onset_step >= ONSET
    assert "shorter" in alert.evidence["summary"]


@pytest.mark.parametrize("name", ["over_training-0", "healthy-0", "short_answers-0"])
def test_what_is_recorded_is_small(name: str) -> None:
    assert (FOLDER / f"{name}.jsonl.gz").stat().st_size < 120_000
