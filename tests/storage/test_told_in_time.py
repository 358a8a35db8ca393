"""From the value that crosses a threshold to the receiver's socket, through real threads."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from monitor.clock import wall_s
from monitor.senders.http import HttpSender
from monitor.services.delivery import Delivery
from monitor.services.detection import Detection
from monitor.services.workers import Supervisor, Worker
from monitor.storage.base import Channel, Database
from tests.fixtures.traces import Row, entries
from tests.storage.test_delivery import SECRET, Receiver, receiver

__all__ = ["receiver"]

ALERTS = 20
P95_S = 3.0


def fault(run: str) -> list[object]:
    rows = [
        Row(step, 1000.0 + step, {"loss/train": float("nan") if step == 20 else 2.0})
        for step in range(1, 21)
    ]
    return [replace(entry, run=run) for entry in entries(rows, cuts=[19])]


@pytest.mark.timeout(120)
def test_p95_from_crossing_to_socket(database: Database, receiver: Receiver) -> None:
    delivering = Delivery(database, wall_s, "one", HttpSender(allow_private=["127.0.0.0/8"]))
    delivery = Worker("delivery", delivering.run_once, 1.0)
    detecting = Detection(database, wall_s, "one", told=delivery.wake)
    workers = Supervisor([Worker("detection", detecting.run_all, 1.0, follows_log=True), delivery])
    config = {"url": receiver.url, "secret": SECRET}
    database.write(lambda uow: uow.channels.save(Channel("hook", "hook", "generic", config)))
    database.on_append(workers.wake)
    workers.start()
    took = []
    try:
        for number in range(ALERTS):
            first, crossing = fault(f"run{number}")
            _append(database, first)
            before, began = len(receiver.got), time.monotonic()
            _append(database, crossing)
            while len(receiver.got) == before and time.monotonic() - began < 10.0:
                time.sleep(0.005)
            took.append(time.monotonic() - began)
    finally:
        assert workers.stop() == []
    assert len(receiver.got) == ALERTS
    assert sorted(took)[int(0.95 * ALERTS) - 1] <= P95_S, sorted(took)


def _append(database: Database, entry: object) -> None:
    def work(uow: object) -> None:
        uow.runs.ensure(entry.run, at=entry.at)  # type: ignore[attr-defined]
        uow.log.append_batch(entry, values=1, refused=0)  # type: ignore[attr-defined]

    database.write(work)
