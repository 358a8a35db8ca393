"""The two engines: transactions, watchers, and what the caller is told when the store is away."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from monitor.clock import FakeClock
from monitor.errors import DiskFull, Unavailable
from monitor.services.ingest import Ingest
from monitor.services.reading import Reading
from monitor.storage.base import Database
from monitor.storage.engine import open_database
from monitor.storage.postgres import PostgresDatabase
from tests.storage.bodies import body


def test_what_raises_is_undone_and_its_neighbours_are_not(database: Database) -> None:
    def good(name: str) -> None:
        database.write(lambda work: work.runs.ensure(name, at=1.0))

    def bad(name: str) -> None:
        def work_then_fail(work) -> None:
            work.runs.ensure(name, at=1.0)
            raise KeyError(name)

        with pytest.raises(KeyError, match=name):
            database.write(work_then_fail)

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(bad if i % 3 == 0 else good, f"r{i}") for i in range(30)]
        for job in jobs:
            job.result()
    with database.read() as work:
        names = {run.id for run in work.runs.live()}
    assert names == {f"r{i}" for i in range(30) if i % 3}


def test_writers_and_a_reader_do_not_get_in_each_others_way(database: Database) -> None:
    ingest, reading = Ingest(database, FakeClock(0.0)), Reading(database)
    stop = threading.Event()
    totals: list[int] = []

    def watch() -> None:
        while not stop.is_set():
            with contextlib.suppress(LookupError):
                totals.append(sum(c.total_points for c in reading.points("r0", ["x"]).series))
            time.sleep(0.05)

    ingest.accept(body(0, run="r0", columns={"x": [1.0]}, steps=[0]))
    reader = threading.Thread(target=watch)
    reader.start()

    def client(number: int) -> int:
        return sum(
            ingest.accept(
                body(
                    seq,
                    run=f"r{number % 2}",
                    source=f"s{number}",
                    columns={"x": [1.0]},
                    steps=[number * 1000 + seq],
                )
            ).stored
            for seq in range(40)
        )

    with ThreadPoolExecutor(8) as pool:
        stored = sum(pool.map(client, range(8)))
    stop.set()
    reader.join()
    assert stored == 320
    assert totals == sorted(totals)
    with database.read() as work:
        assert work.log.heads() == {"r0": 161, "r1": 160}
        positions = [entry.pos for entry in work.log.read("r0", after=0, limit=999)]
    assert positions == list(range(1, 162)), "positions have no gaps"


def test_the_same_batch_sent_by_many_at_once_is_stored_once(database: Database) -> None:
    ingest = Ingest(database, FakeClock(0.0))
    raw = body(columns={"x": [1.0, 2.0]})
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: ingest.accept(raw), range(16)))
    assert sum(receipt.stored for receipt in receipts) == 2
    assert sum(receipt.duplicate for receipt in receipts) == 30
    with database.read() as work:
        assert work.log.head("r") == 1


def test_a_read_is_one_snapshot(database: Database) -> None:
    database.write(lambda work: work.runs.ensure("r", at=1.0))
    with database.read() as work:
        assert len(work.runs.live()) == 1
        database.write(lambda other: other.runs.ensure("r2", at=1.0))
        assert len(work.runs.live()) == 1


def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises((Unavailable, sa.exc.DBAPIError)), database.read() as work:
        work.runs.ensure("r", at=1.0)


def test_watchers_hear_of_commits_and_of_nothing_else(database: Database) -> None:
    heard: list[tuple[str, int]] = []

    def broken(run: str, pos: int) -> None:
        raise ZeroDivisionError

    database.on_append(broken)
    database.on_append(lambda run, pos: heard.append((run, pos)))

    def fail(work) -> None:
        work.runs.ensure("r", at=1.0)
        work.log.append_note("r", "tick", {}, at=1.0)
        raise KeyError

    with pytest.raises(KeyError):
        database.write(fail)
    ingest = Ingest(database, FakeClock(0.0))
    ingest.accept(body(0, columns={"x": [1.0]}))
    ingest.accept(body(0, columns={"x": [1.0]}))
    database.write(lambda work: work.log.append_note("r", "tick", {"at": 1.0}, at=1.0))
    end = time.monotonic() + 5.0
    while len(heard) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert heard == [("r", 1), ("r", 2)]


def test_close_drains_and_can_be_repeated(database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(database.write, lambda work, n=i: work.runs.ensure(f"r{n}", at=1.0))
            for i in range(20)
        ]
        done = [job.result() for job in jobs]
    assert len(done) == 20
    database.close()
    database.close()
    with pytest.raises(Unavailable):
        database.write(lambda work: None)
    with pytest.raises(Unavailable), database.read():
        pass


def test_a_write_inside_a_write_is_a_mistake_and_not_a_deadlock(database: Database) -> None:
    with pytest.raises(RuntimeError, match="inside"):
        database.write(lambda work: database.write(lambda other: None))


def test_an_unknown_address_is_refused() -> None:
    with pytest.raises(ValueError, match="sqlite"):
        open_database("mysql://nowhere")


def test_a_file_locked_from_outside_is_unavailable_and_later_not(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    ingest = Ingest(database, FakeClock(0.0))
    ingest.accept(body(0, columns={"x": [1.0]}))
    outside = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    outside.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(ingest.accept, body(seq, columns={"x": [1.0]}, steps=[seq]))
            for seq in (1, 2, 3)
        ]
        errors = [job.exception() for job in jobs]
    assert all(isinstance(error, Unavailable) for error in errors)
    assert all(error.retry_after_s for error in errors if isinstance(error, Unavailable))
    with database.read() as work:
        assert work.log.head("r") == 1, "readers are not held up"
    outside.execute("ROLLBACK")
    outside.close()
    for seq in (1, 2, 3):
        assert ingest.accept(body(seq, columns={"x": [1.0]}, steps=[seq])).stored == 1
    database.close()


def test_a_full_disk_is_said_and_things_go_on_after_it(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    ingest = Ingest(database, FakeClock(0.0))
    ingest.accept(body(0, columns={"x": [1.0]}))
    with database.migrating() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 3}")
    columns = {f"s{i}": [i * 1.1] for i in range(3000)}
    with pytest.raises(DiskFull) as told:
        ingest.accept(body(1, columns=columns))
    assert told.value.status == 507
    assert told.value.retry_after_s
    with database.read() as work:
        assert work.log.head("r") == 1
    with database.migrating() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert ingest.accept(body(1, columns=columns)).stored == 3000
    database.close()


def test_acknowledged_means_synced(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    with database.migrating() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    database.close()
    assert Path(sqlite_url.removeprefix("sqlite:///")).exists()


def kill_connections(url: str) -> None:
    """End every other connection to this database, as a restart would."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    engine.dispose()


@pytest.mark.postgres
def test_dropped_connections_are_replaced(migrated_pg_url: str) -> None:
    database = PostgresDatabase(migrated_pg_url)
    heard: list[tuple[str, int]] = []
    database.on_append(lambda run, pos: heard.append((run, pos)))
    ingest = Ingest(database, FakeClock(0.0))
    for seq in range(4):
        assert ingest.accept(body(seq, columns={"x": [1.0]}, steps=[seq])).stored == 1
        kill_connections(migrated_pg_url)
        with database.read() as work:
            assert work.log.head("r") == seq + 1
        kill_connections(migrated_pg_url)
    end = time.monotonic() + 10.0
    while ("r", 4) not in heard and time.monotonic() < end:
        time.sleep(0.05)
    assert ("r", 4) in heard, "the ear connects again and catches up"
    database.close()


@pytest.mark.postgres
def test_a_server_that_is_not_there_is_unavailable() -> None:
    database = PostgresDatabase("postgresql+psycopg://nobody@127.0.0.1:1/none")
    began = time.monotonic()
    with pytest.raises(Unavailable):
        database.write(lambda work: None)
    with pytest.raises(Unavailable), database.read():
        pass
    assert time.monotonic() - began < 5.0
    database.close()


@pytest.mark.postgres
def test_an_empty_pool_is_unavailable_within_seconds(migrated_pg_url: str) -> None:
    database = PostgresDatabase(migrated_pg_url)
    with contextlib.ExitStack() as held:
        for _ in range(20):
            held.enter_context(database.read())
        began = time.monotonic()
        with pytest.raises(Unavailable), database.read():
            pass
        assert time.monotonic() - began < 4.0
    database.close()


@pytest.mark.postgres
def test_another_process_hears_of_appends(migrated_pg_url: str) -> None:
    here, there = PostgresDatabase(migrated_pg_url), PostgresDatabase(migrated_pg_url)
    heard = threading.Event()
    there.on_append(lambda run, pos: heard.set())
    Ingest(here, FakeClock(0.0)).accept(body(columns={"x": [1.0]}))
    assert heard.wait(5.0)
    here.close()
    there.close()


@pytest.mark.postgres
def test_two_processes_share_a_run_without_gaps(migrated_pg_url: str) -> None:
    databases = [PostgresDatabase(migrated_pg_url) for _ in range(2)]
    raws = [body(seq, columns={"x": [1.0]}, steps=[seq]) for seq in range(40)]

    def send(number: int) -> int:
        ingest = Ingest(databases[number], FakeClock(0.0))
        return sum(ingest.accept(raw).stored for raw in raws)

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(send, range(2))) == 40
    with databases[0].read() as work:
        assert [e.pos for e in work.log.read("r", after=0, limit=99)] == list(range(1, 41))
    for database in databases:
        database.close()
