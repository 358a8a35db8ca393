"""The list of runs: a few questions for all of them, and what it says is what a run's page says."""

from __future__ import annotations

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from monitor.clock import FakeClock
from monitor.domain.log import ColumnFrame, Matrix
from monitor.services.ingest import Ingest
from monitor.services.latest import BRIEF_KEYS, SPARK_POINTS, Latest
from monitor.services.overview import Overview
from monitor.services.screening import Parsed, Refusals
from monitor.services.sealing import Sealer
from monitor.storage.base import Database, Snapshot
from trainer_hooks.wire import AttemptStart, Phase, RunStart

KEYS = ("loss/train", "tokens_seen", "tokens_per_s", "lr/0")


def send(ingest: Ingest, run: str, seq: int, steps: np.ndarray, attempt: str = "a") -> None:
    values = np.stack([10.0 - steps / 1e4, steps * 512.0, 9_000.0 + steps, steps * 0 + 3e-4])
    frame = ColumnFrame(steps, 100.0 + steps / 8, Matrix(KEYS, values))
    first = int(steps[0])
    start = AttemptStart(at=100.0, ordinal=0 if attempt == "a" else 1, first_step=first)
    save = Phase("checkpoint", f"p{seq}", first, 100.0, end_step=first, end_at=101.0)
    told = (RunStart(name=run, at=100.0), start, save) if seq == 0 else (save,)
    through = int(steps[-1])
    batch = Parsed(run, attempt, "s", seq, 0.0, through, (frame,), told, values.size, Refusals())
    ingest.store(batch)


def seal(database: Database, run: str) -> None:
    def move(work) -> None:
        work.readers.save_snapshot(Snapshot(run, "detection", work.log.head(run), {}))

    database.write(move)
    sealer = Sealer(database, FakeClock(1000.0), "o")
    while sealer.seal(run).more:
        pass


@pytest.fixture
def ingest(database: Database) -> Ingest:
    return Ingest(database, FakeClock(1000.0))


def fill(database: Database, ingest: Ingest, runs: int) -> None:
    """Sealed runs; every other one has an unsealed tail as well, and one was rewound."""
    for number in range(runs):
        run = f"r{number}"
        send(ingest, run, 0, np.arange(0, 12_000))
        if number == 1:
            send(ingest, run, 0, np.arange(9_000, 10_000), attempt="b")
        seal(database, run)
        if number % 2:
            attempt, first = ("b", 10_000) if number == 1 else ("a", 12_000)
            send(ingest, run, 1, np.arange(first, first + 500), attempt=attempt)


def statements(database: Database, latest: Latest) -> int:
    asked: list[str] = []

    def note(_c: object, _cursor: object, text: str, *_rest: object) -> None:
        asked.append(text)

    event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        with database.read() as work:
            Overview(latest).runs(work, states=None, text="", limit=100)
    finally:
        event.remove(sa.Engine, "before_cursor_execute", note)
    return len(asked)


def test_as_many_questions_for_thirty_sealed_runs_as_for_three(
    database: Database, ingest: Ingest
) -> None:
    for number in range(3):
        send(ingest, f"r{number}", 0, np.arange(0, 100))
        seal(database, f"r{number}")
    few = statements(database, Latest())
    for number in range(3, 30):
        send(ingest, f"r{number}", 0, np.arange(0, 100))
        seal(database, f"r{number}")
    assert statements(database, Latest()) == few <= 20


def test_the_list_says_what_each_run_says_by_itself(database: Database, ingest: Ingest) -> None:
    fill(database, ingest, 4)
    with database.read() as work:
        listed = Overview(Latest(), FakeClock(1000.0)).runs(work, states=None, text="", limit=10)
        for summary in listed:
            latest = Latest()
            run = work.runs.get(summary.id)
            assert run is not None
            series = {one.key: one for one in Overview(latest).series(work, run.id)}
            assert Overview(latest, FakeClock(1000.0)).summary(work, run) == summary
            for key in BRIEF_KEYS:
                assert getattr(summary, key) == series[key].last_value
            assert series["lr/0"].last_value == 3e-4
    by_id = {one.id: one for one in listed}
    assert by_id["r0"].tokens_seen == 11_999 * 512.0
    assert by_id["r1"].tokens_seen == 10_499 * 512.0  # rewound: what the old attempt had is a ghost
    assert by_id["r3"].tokens_seen == 12_499 * 512.0


def test_the_small_line_spans_the_run_and_stays_small(database: Database, ingest: Ingest) -> None:
    fill(database, ingest, 1)
    with database.read() as work:
        (summary,) = Overview(Latest()).runs(work, states=None, text="", limit=10)
    steps = summary.spark.steps
    assert 40 <= len(steps) <= SPARK_POINTS
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] > 11_000


def test_a_brief_look_is_completed_when_all_values_are_asked_for(
    database: Database, ingest: Ingest
) -> None:
    fill(database, ingest, 1)
    latest = Latest()
    with database.read() as work:
        assert set(latest.brief(work, ["r0"])["r0"].values) == set(BRIEF_KEYS)
        assert set(latest.of(work, "r0").values) == set(KEYS)
        assert set(latest.brief(work, ["r0"])["r0"].values) == set(KEYS)
        assert latest.brief(work, ["nobody"])["nobody"].values == {}
