"""The same run gives the same alerts, however it is cut, and wherever the judge was replaced."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.domain.log import LogEntry
from monitor.services.judging import DetectionEngine
from tests.fixtures.traces import Row, entries, judge, read_rows

RUNS = Path(__file__).parents[1] / "runs"


@cache
def rows(name: str) -> tuple[Row, ...]:
    return tuple(read_rows(RUNS / f"{name}.csv.gz"))


@cache
def expected(name: str) -> list[object]:
    return list(judge(entries(rows(name))))


CUTS = st.lists(st.integers(0, 1400), max_size=12)


@pytest.mark.parametrize("name", ["zoo/stale16", "zoo/lr0", "zoo/nan", "zoo/badbatch"])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=CUTS)
def test_cut_anywhere(name: str, cuts: list[int]) -> None:
    inside = [cut for cut in cuts if 0 < cut < len(rows(name))]
    assert judge(entries(rows(name), cuts=inside)) == expected(name)


def successor(engine: DetectionEngine) -> DetectionEngine:
    """A judge in another process: all it gets is the snapshot, as JSON text."""
    state = json.loads(json.dumps(engine.snapshot(), allow_nan=False))
    fresh = DetectionEngine(engine.run)
    assert fresh.restore(state)
    return fresh


@pytest.mark.parametrize(
    "name", ["zoo/stale16", "zoo/lr0", "zoo/nan", "zoo/repeat64k", "zoo/template"]
)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_replaced_anywhere(name: str, data: st.DataObject) -> None:
    log = entries(rows(name), cuts=range(0, len(rows(name)), 25))
    changes = set(data.draw(st.lists(st.integers(0, len(log)), max_size=6)))
    engine, effects, plain = DetectionEngine("run"), [], []
    reference = DetectionEngine("run")
    for index, entry in enumerate(log):
        if index in changes:
            engine = successor(engine)
        effects += engine.feed(entry)
        plain += reference.feed(entry)
    assert effects == plain


def test_values_held_back_are_in_the_snapshot() -> None:
    """A step whose source has not said that it is complete waits, over a restart too."""
    log = [_held_back(entry) for entry in entries(rows("zoo/nan"))]
    engine = DetectionEngine("run")
    for entry in log[:-1]:
        engine.feed(entry)
    restored = successor(engine)
    last = entries(rows("zoo/nan"))[-1]
    assert restored.feed(last) == engine.feed(last) != []


def _held_back(entry: LogEntry) -> LogEntry:
    return LogEntry(
        entry.run, entry.pos, entry.kind, entry.at, entry.attempt, entry.source, entry.seq,
        entry.through_step - 40 if entry.through_step else None, entry.frames, entry.records,
    )  # fmt: skip
