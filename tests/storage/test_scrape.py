"""The Prometheus collector over the store: bounded, and only of live runs."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from monitor.clock import FakeClock
from monitor.services.ingest import Ingest
from monitor.services.latest import Latest
from monitor.services.scrape import LARGEST_SCRAPE, Scrape
from monitor.storage.base import Database
from tests.fixtures.batches import batch, body, opening
from trainer_hooks.wire import RunEnd


def samples(scrape: Scrape) -> dict[str, list[float]]:
    text = scrape.render("")[0].decode()
    return {
        family.name: [sample.value for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_there_are_never_more_samples_than_the_cap(database: Database) -> None:
    clock = FakeClock(1000.0)
    ingest = Ingest(database, clock)
    scrape = Scrape(database, Latest(), list, lambda: 0, clock)
    columns = {f"s{k}": [1.0] for k in range(499)} | {"loss/train": [2.0]}
    runs = LARGEST_SCRAPE // 500
    for number in range(runs):
        one = batch(f"r{number}", 0, [1], columns=dict(columns), records=opening(f"r{number}"))
        ingest.accept(body(one))
    found = samples(scrape)
    assert len(found["watchkeeper_signal"]) == LARGEST_SCRAPE
    assert found["watchkeeper_scrape_truncated"] == [0]
    ingest.accept(body(batch("more", 0, [1], records=opening("more"))))
    found = samples(scrape)
    assert len(found["watchkeeper_signal"]) == LARGEST_SCRAPE
    assert found["watchkeeper_scrape_truncated"] == [1]


def test_runs_that_ended_cost_the_scrape_nothing(database: Database) -> None:
    clock = FakeClock(1000.0)
    ingest = Ingest(database, clock)
    scrape = Scrape(database, Latest(), list, lambda: 0, clock)
    empty = scrape.render("")[0].count(b"\n")
    for number in range(30):
        records = [*opening(f"r{number}"), RunEnd("finished", 1.0, 1)]
        ingest.accept(body(batch(f"r{number}", 0, [1], records=records)))
    assert scrape.render("")[0].count(b"\n") == empty


def test_a_database_that_is_away_is_said_and_not_an_error(database: Database) -> None:
    scrape = Scrape(database, Latest(), list, lambda: 3, FakeClock(1.0))
    database.close()
    found = samples(scrape)
    assert found["watchkeeper_database_up"] == [0]
    assert found["watchkeeper_streams"] == [3]
