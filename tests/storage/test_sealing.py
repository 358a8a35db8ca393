"""Sealing and reading on both databases: the same points, at every size and every zoom."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor.clock import FakeClock
from monitor.domain.log import ColumnFrame, Matrix
from monitor.errors import NotFound
from monitor.services.ingest import Ingest
from monitor.services.reading import Reading
from monitor.services.screening import Parsed, Refusals
from monitor.services.sealing import Sealer
from monitor.storage.base import Database, Fenced, Snapshot
from monitor.storage.codec import unpack_points
from tests.storage.bodies import body


def send(
    ingest: Ingest,
    seq: int,
    steps: np.ndarray,
    values: np.ndarray,
    keys: tuple[str, ...] = ("x",),
    attempt: str = "a",
) -> None:
    """One batch whose every key has these values; past the parser, which other tests cover."""
    matrix = Matrix(keys, np.tile(np.asarray(values, np.float64), (len(keys), 1)))
    frame = ColumnFrame(np.asarray(steps, np.int64), np.asarray(steps, np.float64) / 8, matrix)
    ingest.store(
        Parsed(
            run="r",
            attempt=attempt,
            source="s",
            seq=seq,
            sent_at=0.0,
            through_step=None,
            frames=(frame,),
            records=(),
            values=len(steps) * len(keys),
            refusals=Refusals(),
        )
    )


def caught_up(database: Database) -> None:
    def move(work) -> None:
        work.readers.save_snapshot(Snapshot("r", "detection", work.log.head("r"), {}))

    database.write(move)


@pytest.fixture
def ingest(database: Database) -> Ingest:
    return Ingest(database, FakeClock(1000.0))


@pytest.fixture
def sealer(database: Database) -> Sealer:
    return Sealer(database, FakeClock(1000.0), "me")


def test_small_seals_grow_into_full_blocks_with_bounded_rewriting(
    database: Database, ingest: Ingest, sealer: Sealer
) -> None:
    rng = np.random.default_rng(1)
    step = written = seq = 0
    while step < 12_000:
        count = int(rng.integers(1, 120))
        send(ingest, seq, np.arange(step, step + count), np.arange(step, step + count))
        written += sealer.seal("r").written
        step, seq = step + count, seq + 1
    assert written <= 4 * step
    with database.read() as work:
        blocks = work.blocks.summaries("r", [1], first_step=None, last_step=None)
        buckets = work.blocks.buckets("r", [1], first_step=None, last_step=None)
        bodies = work.blocks.bodies([b.id for b in blocks if b.id is not None])
    counts = [block.summary.count for block in blocks]
    assert sum(counts) == step
    assert counts[:2] == [4096, 4096]
    assert len(counts) < 60
    points = np.concatenate([unpack_points(block.body).values for block in bodies])
    assert (points == np.arange(step)).all()
    assert sum(bucket.count for bucket in buckets) == step
    firsts = [bucket.first_step for bucket in buckets]
    assert firsts == sorted(set(firsts))
    assert all(
        later.first_step > earlier.last_step
        for earlier, later in zip(buckets, buckets[1:], strict=False)
    )


def test_a_late_point_is_merged_on_read_and_compacted_soon(
    database: Database, ingest: Ingest, sealer: Sealer
) -> None:
    send(ingest, 0, np.arange(0, 20_000, 2), np.zeros(10_000))
    sealer.seal("r")
    send(ingest, 1, [4001, 4002], [7.0, 8.0])
    reading = Reading(database)
    for expected_blocks in (3, 4, 4):
        with database.read() as work:
            blocks = work.blocks.summaries("r", [1], first_step=None, last_step=None)
        assert len(blocks) == expected_blocks
        (curve,) = reading.points("r", ["x"], from_step=3999, to_step=4004).series
        assert curve.resolution == "raw"
        assert dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)) == {
            4000: 0.0,
            4001: 7.0,
            4002: 8.0,
            4004: 0.0,
        }
        (whole,) = reading.points("r", ["x"]).series
        assert whole.high is not None
        assert float(np.nanmax(whole.high)) == 8.0
        sealer.seal("r")
    assert whole.total_points == 10_001
    with database.read() as work:
        buckets = work.blocks.buckets("r", [1], first_step=None, last_step=None)
        assert work.log.sources("r")[0].overwritten == 1
    assert sum(bucket.count for bucket in buckets) == 10_001
    assert max(bucket.high or 0 for bucket in buckets) == 8.0


def test_a_spike_and_a_nan_are_seen_at_every_zoom_of_a_million_points(
    database: Database, ingest: Ingest, sealer: Sealer
) -> None:
    values = np.random.default_rng(0).normal(0, 1, 1_000_000).astype(np.float32).astype(np.float64)
    values[612_345] = 100.0
    values[777_777] = np.nan
    values[5] = -np.inf
    for seq, at in enumerate(range(0, 1_000_000, 50_000)):
        send(ingest, seq, np.arange(at, at + 50_000), values[at : at + 50_000])
    caught_up(database)
    while sealer.seal("r").more:
        pass
    reading = Reading(database)
    seen: set[str] = set()
    for width in (1_000_000, 700_000, 200_000, 50_000, 9_000, 2_000, 10):
        first, last = max(0, 612_345 - width // 2), min(999_999, 612_345 + width // 2 - 1)
        answer = reading.points("r", ["x"], from_step=first, to_step=last)
        (curve,) = answer.series
        seen.add(curve.resolution)
        high = curve.values if curve.high is None else curve.high
        assert float(np.nanmax(high)) == 100.0
        assert len(curve.steps) <= (2_000 if curve.resolution == "raw" else 1_000)
        assert curve.total_points == last - first + 1
        assert first <= curve.steps[0]
        assert curve.steps[-1] <= last
        assert (777_777 in curve.non_finite) == (first <= 777_777 <= last)
        spoilt = sum(first <= step <= last for step in (5, 777_777))
        assert sum(broken for _, broken, _ in curve.mixed) == spoilt * (curve.resolution != "raw")
        if width <= 2_000:
            assert curve.resolution == "raw"
            assert (curve.values == values[first : last + 1]).all()
    assert seen == {"raw", "bucket", "block"}
    (few,) = reading.points("r", ["x"], max_points=50).series
    assert len(few.steps) <= 50
    assert few.high is not None
    assert float(np.nanmax(few.high)) == 100.0
    assert {5, 777_777} <= set(few.non_finite.tolist())
    assert [broken for _, broken, _ in few.mixed] == [1, 1]
    assert all(points > 1 for _, _, points in few.mixed)


def test_what_is_not_sealed_yet_is_part_of_the_curve(
    database: Database, ingest: Ingest, sealer: Sealer
) -> None:
    reading = Reading(database)
    for seq in range(6):
        send(ingest, seq, np.arange(seq * 10, seq * 10 + 10), np.full(10, float(seq)))
        (curve,) = reading.points("r", ["x", "unknown"]).series
        assert curve.total_points == (seq + 1) * 10
        if seq == 2:
            sealer.seal("r")
    assert reading.points("r", ["x"]).cursor == 6
    with pytest.raises(NotFound):
        reading.points("nowhere", ["x"])


def test_ghosts_are_cut_off_at_the_step_in_long_curves(
    database: Database, ingest: Ingest, sealer: Sealer
) -> None:
    def start(attempt: str, ordinal: int, first: int) -> None:
        record = {"kind": "attempt_start", "ordinal": ordinal, "first_step": first, "at": 1.0}
        ingest.accept(body(0, attempt=attempt, records=[record]))

    start("one", 0, 0)
    send(ingest, 1, np.arange(900_000), np.zeros(900_000), attempt="one")
    start("two", 1, 500_001)
    send(ingest, 1, np.arange(500_001, 500_101), np.ones(100), attempt="two")
    while sealer.seal("r").more:
        pass
    shown = {(c.attempt, c.ghost): c for c in Reading(database).points("r", ["x"]).series}
    assert {place: c.total_points for place, c in shown.items()} == {
        ("one", False): 500_001,
        ("one", True): 399_999,
        ("two", False): 100,
    }
    assert int(shown["one", True].steps[0]) == 500_001


def test_the_log_is_kept_until_detection_has_its_snapshot(
    database: Database, ingest: Ingest, sealer: Sealer
) -> None:
    for seq in range(5):
        send(ingest, seq, [seq], [1.0])
    sealer.seal("r")

    def kept() -> list[int]:
        with database.read() as work:
            return [entry.pos for entry in work.log.read("r", after=0, limit=99)]

    assert kept() == [1, 2, 3, 4, 5]
    database.write(lambda w: w.readers.save_snapshot(Snapshot("r", "detection", 3, {})))
    assert sealer.seal("r").dropped == 3
    assert kept() == [4, 5]
    with database.read() as work:
        assert (work.log.first("r"), work.log.head("r")) == (4, 5)


def test_a_seal_that_was_taken_over_writes_nothing(
    database: Database, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(ingest, 0, np.arange(10), np.zeros(10))
    late = database.write(lambda w: w.readers.open("r", "sealer", owner="late", lease_s=0.0))
    assert late is not None
    other = Sealer(database, FakeClock(0.0), "other")
    assert other.seal("r").points == 10
    with pytest.raises(Fenced):
        database.write(lambda w: w.readers.move(late, 1))
    with database.read() as work:
        blocks = work.blocks.summaries("r", [1], first_step=None, last_step=None)
    assert [block.summary.count for block in blocks] == [10]


def test_a_lease_keeps_a_second_sealer_out(database: Database, ingest: Ingest) -> None:
    send(ingest, 0, np.arange(10), np.zeros(10))
    first, second = (Sealer(database, FakeClock(0.0), name) for name in ("one", "two"))
    assert first.seal("r").points == 10
    send(ingest, 1, np.arange(10, 20), np.zeros(10))
    assert second.seal("r").points == 0
    database.write(lambda w: w.readers.release("r", "sealer", owner="one"))
    assert second.seal("r").points == 10


def test_runs_are_sealed_by_number_and_by_age(database: Database, ingest: Ingest) -> None:
    clock = FakeClock(1000.0)
    sealer = Sealer(database, clock, "me")
    sealer.run_once()

    def sealed() -> int:
        with database.read() as work:
            return work.readers.positions("r").get("sealer", 0)

    send(ingest, 0, [0], [1.0])
    clock.advance(1.0)
    sealer.run_once()
    assert sealed() == 1, "what a server finds at its start is sealed at once"
    send(ingest, 1, [1], [1.0])
    clock.advance(1.0)
    sealer.run_once()
    assert sealed() == 1
    clock.advance(30.0)
    sealer.run_once()
    assert sealed() == 2
    for seq in range(2, 300):
        send(ingest, seq, [seq], [1.0])
    clock.advance(1.0)
    assert sealer.run_once() is True
    assert sealed() == 258
    clock.advance(0.01)
    sealer.run_once()


def test_sparse_columns_keep_absent_and_nan_apart(
    database: Database, ingest: Ingest, sealer: Sealer
) -> None:
    raw = json.loads(body(columns={"a": [1.0, None, float("nan")], "b": [None, None, 2.0]}))
    ingest.accept(json.dumps(raw).encode())
    for _ in range(2):
        found = Reading(database).points("r", ["a", "b"]).series
        assert [c.steps.tolist() for c in found] == [[0, 2], [2]]
        assert np.isnan(found[0].values[1])
        assert found[0].non_finite.tolist() == [2]
        sealer.seal("r")
