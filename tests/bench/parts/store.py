"""A store that is full already: sealed runs, as they are after weeks."""

from __future__ import annotations

import time

import numpy as np

from monitor.clock import wall_s
from monitor.domain.block import Block, Bucket, Ranked, buckets_of, cut, summarise, tier_of
from monitor.domain.log import ColumnFrame, Matrix
from monitor.services.ingest import Ingest
from monitor.services.screening import Parsed, Refusals
from monitor.storage.base import Database, Snapshot, UnitOfWork
from monitor.storage.codec import pack_points
from tests.bench.parts.load import EVERY_STEP
from trainer_hooks.wire import AttemptStart, RunEnd, RunStart

KEYS = (*EVERY_STEP, *(f"weight_rms/layer{i}" for i in range(50 - len(EVERY_STEP))))


def fill(database: Database, runs: int, points: int) -> None:
    """``runs`` finished runs of 50 series with ``points`` points each, sealed, their logs let go.

    The curves are laid down as the sealer would; only the last batch goes through the log.
    """
    rng = np.random.default_rng(0)
    ranked = Ranked(
        np.arange(points),
        time.time() - (points - np.arange(points)) * 0.09,
        (2.0 + 3.0 / np.sqrt(1 + np.arange(points)) + rng.normal(0, 0.02, points))
        .astype(np.float32)
        .astype(np.float64),
        np.arange(points) // 20,
    )
    pieces = [(piece, pack_points(piece)) for piece in cut(ranked)]
    for number in range(runs):
        run = f"stored-{number:03}"
        _begin(Ingest(database, wall_s), run, points)
        database.write(lambda work, run=run: _lay(work, run, ranked, pieces))


def _begin(ingest: Ingest, run: str, points: int) -> None:
    at = time.time()
    start = RunStart(name=run, at=at - points * 0.09, planned_steps=points, price_per_hour=2.0)
    attempt = AttemptStart(at=at - points * 0.09, ordinal=0, first_step=0)
    end = RunEnd(at=at, status="finished", last_step=points)
    values = np.full((len(KEYS), 1), 2.0)
    frame = ColumnFrame(np.array([points]), np.array([at]), Matrix(KEYS, values))
    records = (start, attempt, end)
    ingest.store(Parsed(run, "a", "s", 0, at, points, (frame,), records, len(KEYS), Refusals()))


def _lay(work: UnitOfWork, run: str, ranked: Ranked, pieces: list[tuple[Ranked, bytes]]) -> None:
    blocks: list[Block] = []
    buckets: list[Bucket] = []
    for series in work.series.all(run):
        for piece, body in pieces:
            rank, tier = int(piece.ranks[-1]), tier_of(len(piece))
            blocks.append(Block(series.number, "a", summarise(piece), rank, tier, body))
        buckets += buckets_of(series.number, "a", ranked)
    work.blocks.add(run, blocks, buckets)
    head = work.log.head(run)
    for reader in ("detection", "sealer"):
        cursor = work.readers.open(run, reader, owner="bench", lease_s=0.0)
        if cursor is not None:
            work.readers.move(cursor, head)
            work.readers.release(run, reader, owner="bench")
    work.readers.save_snapshot(Snapshot(run, "detection", head, {}))
    work.log.drop_through(run, head)
