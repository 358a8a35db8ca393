"""A foreign log becomes a run: stored once, judged as its file would be, nobody told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from monitor.clock import FakeClock
from monitor.domain.run import is_past_data
from monitor.errors import NotFound
from monitor.importers import read_log
from monitor.importers.base import Imported
from monitor.services.backtest import Judged, imported_entries, judge, stored_entries
from monitor.services.detection import Detection
from monitor.services.importing import import_run
from monitor.services.ingest import Ingest
from monitor.services.reading import Reading
from monitor.services.sealing import Sealer
from monitor.storage.base import Channel, Database

RUNS = Path(__file__).parents[1] / "runs"
NOW = 1_760_000_000.0


def read(name: str) -> Imported:
    with (RUNS / f"{name}.csv.gz").open("rb") as stream:
        return read_log(stream, ended_at=NOW - 3600.0)


def said(judged: Judged) -> list[tuple[object, ...]]:
    return [
        (a.detector, a.subject, a.severity, a.onset_step, a.opened_step, a.resolved_step)
        for a in judged.alerts
    ]


def judge_stored(database: Database, run: str) -> None:
    detection = Detection(database, FakeClock(NOW), "test")
    while detection.run_once(run):
        pass
    detection.close()


@pytest.mark.parametrize("name", ["zoo/stale16", "zoo/lr0", "zoo/nan", "zoo/healthy_cos"])
def test_an_imported_run_is_judged_as_its_file_and_nobody_is_told(
    database: Database, name: str
) -> None:
    channel = Channel("webhook", "webhook", "generic", {"url": "http://127.0.0.1:9/"})
    database.write(lambda uow: uow.channels.save(channel))
    imported = read(name)
    ingest = Ingest(database, FakeClock(NOW))
    counts = import_run(imported, ingest.accept, run="past", name="a past run")
    assert (counts.stored, counts.refused) == (imported.values, 0)
    judge_stored(database, "past")

    of_file = judge("past", imported_entries(imported, "past"))
    with database.read() as uow:
        run = uow.runs.get("past")
        assert run is not None
        assert (run.name, run.state) == ("a past run", "finished")
        assert is_past_data(run.facts)
        alerts = uow.alerts.of_run("past")
        assert {alert.id for alert in alerts} == {alert.id for alert in of_file.alerts}
        assert all(not uow.outbox.of_alert(alert.id) for alert in alerts)
        assert not any(uow.outbox.counts().values())
    assert said(judge("past", stored_entries(database, "past"))) == said(of_file)
    assert bool(of_file.alerts) == (name != "zoo/healthy_cos")


def test_the_same_file_again_changes_nothing(database: Database) -> None:
    imported = read("zoo/nan")
    ingest = Ingest(database, FakeClock(NOW))
    first = import_run(imported, ingest.accept, run="past", name="p")
    again = import_run(imported, ingest.accept, run="past", name="p")
    assert (again.stored, again.duplicate) == (0, first.stored)


def test_a_backtest_of_a_sealed_run_equals_that_of_its_file(database: Database) -> None:
    imported = read("zoo/stale16")
    clock = FakeClock(NOW)
    import_run(imported, Ingest(database, clock).accept, run="past", name="p")
    judge_stored(database, "past")
    clock.advance(3600.0)
    sealer = Sealer(database, clock, "test")
    while sealer.run_once():
        pass
    with database.read() as uow:
        assert uow.readers.positions("past")["sealer"] == uow.log.head("past")
    of_file = judge("past", imported_entries(imported, "past"))
    of_store = judge("past", stored_entries(database, "past"))
    assert said(of_store) == said(of_file)
    assert of_store.steps == of_file.steps == 1363
    causes = {a.detector: a.evidence["causes"][0]["text"] for a in of_store.alerts}
    assert "stall of 0.4 s at step 600" in causes["stale_data"]


def test_a_resume_in_the_log_is_an_attempt_of_the_run(database: Database) -> None:
    lines = "".join(f"{s},{2.0 + s / 1000}\n" for s in (*range(100), *range(60, 120)))
    imported = read_log(io.BytesIO(b"step,loss\n" + lines.encode()), ended_at=NOW)
    import_run(imported, Ingest(database, FakeClock(NOW)).accept, run="past", name="p")
    with database.read() as uow:
        attempts = uow.runs.attempts("past")
    assert [(a.ordinal, a.first_step) for a in attempts] == [(0, 0), (1, 60)]
    curves = Reading(database).points("past", ["loss/train"]).series
    assert [(c.ghost, len(c.steps)) for c in curves] == [(False, 60), (True, 40), (False, 60)]
    entries = list(stored_entries(database, "past"))
    assert sum(len(frame.steps) for entry in entries for frame in entry.frames) == 160


def test_a_backtest_of_no_run_is_an_error(database: Database) -> None:
    with pytest.raises(NotFound):
        list(stored_entries(database, "nothing"))
