"""The lamp and the sentence of a run."""

from __future__ import annotations

import pytest

from monitor.domain.alert import Alert, AlertState
from monitor.domain.plan import Checkpoint, finish_at
from monitor.domain.run import Run, RunState
from monitor.services.latest import SPARK_POINTS, Line
from monitor.services.overview import health_of, sentence_of


def run(state: RunState = "running", *, last_step: int = 41_500, error: str | None = None) -> Run:
    return Run(
        "r", "tiny", "pretrain", state, 0.0, 1000.0, {"planned_steps": 50_000}, error=error,
        last_step=last_step,
    )  # fmt: skip


def alert(severity: str, *, state: AlertState = "firing", onset: int = 41_203) -> Alert:
    return Alert(
        "a", "r", "stale_data", "", 1, state, severity, "stale data", "a1", onset, 0.0, onset, 0.0,
        onset,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "alerts", "health"),
    [
        ("running", [], "healthy"),
        ("running", [alert("info")], "healthy"),
        ("running", [alert("warning")], "look"),
        ("running", [alert("critical")], "act"),
        ("running", [alert("critical", state="acknowledged")], "look"),
        ("stalled", [], "look"),
        ("lost", [alert("warning")], "lost"),
        ("lost", [alert("critical")], "act"),
        ("finished", [], "finished"),
        ("failed", [alert("critical")], "failed"),
        ("interrupted", [], "stopped"),
        ("terminated", [], "stopped"),
    ],
)
def test_the_lamp(state: RunState, alerts: list[Alert], health: str) -> None:
    assert health_of(run(state), alerts) == health


def test_the_sentence_says_since_when_and_where_to_go_back_to() -> None:
    saved = [Checkpoint(40_000, 0.0), Checkpoint(41_000, 0.0), Checkpoint(41_203, 0.0)]
    said = sentence_of(run(), "look", [alert("warning")], saved, 1000.0)
    assert said == "Stale data since step 41,203; last checkpoint before it 41,000"
    said = sentence_of(run(), "look", [alert("warning")], [], 1000.0)
    assert said.endswith("no checkpoint before it")


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (run("lost"), "Lost: nothing heard for 10 min"),
        (run("stalled"), "Stalled at step 41,500: heartbeats arrive, but no new step"),
        (run("failed", error="RuntimeError"), "Failed (RuntimeError) at step 41,500"),
        (run(last_step=12), "Warming up: nothing is judged before step 128"),
        (run(), "Healthy; no checkpoint yet"),
    ],
)
def test_other_sentences(one: Run, said: str) -> None:
    assert sentence_of(one, health_of(one, []), [], [], 1600.0) == said


def test_the_finish_is_told_where_it_can_be() -> None:
    assert finish_at(run(), 10.0) == 1000.0 + 8500 / 10
    assert finish_at(run(), None) is None


def test_a_spark_line_stays_small_and_keeps_its_ends() -> None:
    line = Line()
    for step in range(100_000):
        line.add(step, float(step))
    assert line.steps[0] == 0
    assert SPARK_POINTS / 4 < len(line.steps) <= SPARK_POINTS
    assert line.steps[-1] > 97_000
    gaps = [b - a for a, b in zip(line.steps, line.steps[1:], strict=False)]
    assert max(gaps) <= 2 * min(gaps)
    line.cut(50_000)
    assert line.steps[-1] < 50_000
