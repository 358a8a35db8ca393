"""A real run that was fed stale data: up to four detectors speak, one message leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from monitor.clock import FakeClock
from monitor.services.detection import Detection
from monitor.storage.base import Database
from tests.fixtures.house import House
from tests.fixtures.traces import entries, read_rows

TRACE = Path(__file__).parents[1] / "runs" / "zoo" / "stale16.csv.gz"


@pytest.mark.timeout(120)
def test_stale_data_is_one_incident_and_one_push(database: Database) -> None:
    clock = FakeClock(1_800_000_000.0)
    house = House(database, clock)
    house.detection = Detection(database, clock, "real", lease_s=0.0)
    for entry in entries(read_rows(TRACE)):
        arrived = replace(entry, at=clock())

        def work(uow: object, arrived: object = arrived) -> None:
            uow.runs.ensure("run", at=clock())  # type: ignore[attr-defined]
            uow.log.append_batch(arrived, values=1, refused=0)  # type: ignore[attr-defined]

        database.write(work)
        house.settle()
        clock.advance(60.0)
    told = [alert for alert in house.alerts() if alert.severity != "info"]
    assert len(told) >= 2
    assert told[0].detector == "stale_data"
    assert {alert.incident for alert in told} == {told[0].id}
    assert house.types.count("opened") == 1
    (message,) = [one for one in house.sent if one.type == "alert.opened"]
    listed = [row for alert in told[1:] for row in house.rows(alert.id) if row.moment == "opened"]
    assert {row.folded_into for row in listed} == {message.id}
