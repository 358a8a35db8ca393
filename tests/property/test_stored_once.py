"""However a run's values are cut, ordered, repeated and sealed, the same points are stored."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from monitor.clock import FakeClock
from monitor.domain.block import Ranked, merge
from monitor.services.ingest import Ingest
from monitor.services.reading import Reading
from monitor.services.sealing import Sealer
from monitor.storage.base import Snapshot
from monitor.storage.codec import pack_points, unpack_points
from monitor.storage.engine import open_database
from monitor.storage.migrate import upgrade
from trainer_hooks.wire import Batch, Frame, encode

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, width=64)
BATCHES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 400), min_size=1, max_size=30),
        st.sampled_from(["x", "y", "xy"]),
        ANY_FLOAT,
    ),
    min_size=1,
    max_size=12,
)


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def to_bodies(batches: list[tuple[list[int], str, float]]) -> tuple[list[bytes], dict]:
    """The batches as bodies, and the points that must come of them, by (key, step)."""
    bodies: list[bytes] = []
    expected: dict[tuple[str, int], float] = {}
    for seq, (steps, keys, value) in enumerate(batches):
        cells = [value if i % 3 == 0 else float(seq * 1000 + i) for i in range(len(steps))]
        frame = Frame(steps, [float(s) for s in steps], {key: list(cells) for key in keys})
        for key in keys:
            expected |= {(key, step): cell for step, cell in zip(steps, cells, strict=True)}
        bodies.append(encode(Batch("r", "a", "s", seq, 0.0, None, [frame])))
    return bodies, expected


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would take minutes
)
@given(
    batches=BATCHES,
    order=st.randoms(use_true_random=False),
    seal_after=st.sets(st.integers(0, 30), max_size=8),
)
def test_any_order_any_repeat_any_seal_gives_the_same_points(batches, order, seal_after) -> None:
    bodies, expected = to_bodies(batches)
    sent = bodies + [body for body in bodies if order.random() < 0.5]
    order.shuffle(sent)
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{Path(folder) / 'x.db'}")
        upgrade(database)
        clock = FakeClock(1000.0)
        ingest, reading = Ingest(database, clock), Reading(database)
        sealer = Sealer(database, clock, "me")
        stored = 0
        for index, body in enumerate(sent):
            stored += ingest.accept(body).stored
            if index in seal_after:
                head = index
                database.write(
                    lambda w, p=head: w.readers.save_snapshot(Snapshot("r", "detection", p, {}))
                )
                sealer.run_once("r")
        got = {
            (curve.key, int(step)): float(value)
            for curve in reading.points("r", ["x", "y"]).series
            for step, value in zip(curve.steps, curve.values, strict=True)
        }
        database.close()
    assert {k: bits(v) for k, v in got.items()} == {k: bits(v) for k, v in expected.items()}
    assert stored == sum(len(steps) * len(keys) for steps, keys, _ in batches)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_packed_points_come_back_to_the_bit(data) -> None:
    steps = sorted(data.draw(st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=40)))
    count = len(steps)
    values = data.draw(st.lists(ANY_FLOAT, min_size=count, max_size=count))
    times = data.draw(st.lists(st.integers(-(10**13), 10**13), min_size=count, max_size=count))
    ranks = data.draw(st.lists(st.integers(0, 2**63 - 1), min_size=count, max_size=count))
    points = Ranked(
        np.array(steps, np.int64),
        np.array(times, np.float64) / 1000.0,
        np.array(values),
        np.array(ranks, np.int64),
    )
    back = unpack_points(pack_points(points))
    assert (back.steps == points.steps).all()
    assert (back.times == points.times).all()
    assert (back.ranks == points.ranks).all()
    assert [bits(v) for v in back.values] == [bits(v) for v in points.values]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=10),
        min_size=1,
        max_size=5,
    )
)
def test_merge_keeps_the_highest_rank_of_each_step(parts) -> None:
    expected: dict[int, tuple[int, float]] = {}
    ranked: list[Ranked] = []
    number = 0.0
    for part in parts:
        values = [number + i for i in range(len(part))]
        number += len(part)
        for (step, rank), value in zip(part, values, strict=True):
            if step not in expected or rank >= expected[step][0]:
                expected[step] = (rank, value)
        ranked.append(
            Ranked(
                np.array([s for s, _ in part], np.int64),
                np.zeros(len(part)),
                np.array(values, np.float64),
                np.array([r for _, r in part], np.int64),
            )
        )
    merged = merge(ranked)
    assert merged.steps.tolist() == sorted(expected)
    assert merged.values.tolist() == [expected[step][1] for step in sorted(expected)]
