"""The sealer: lays the points of the log into blocks and buckets, and lets the log go.

It reads and packs outside any write; the transaction only inserts, moves the fenced cursor and
drops what every reader is past. A crash before the commit leaves all as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.clock import Clock
from monitor.domain.block import (
    BLOCK_POINTS,
    FULL_TIER,
    PATCH_TIER,
    Block,
    Bucket,
    Ranked,
    absorbed,
    buckets_of,
    by_steps,
    cut,
    merge,
    summarise,
    tier_of,
)
from monitor.domain.log import LogEntry
from monitor.services.gathering import gather
from monitor.storage.base import Cursor, Database, Fenced, UnitOfWork
from monitor.storage.codec import pack_points, unpack_points

READER = "sealer"
DETECTION = "detection"

_LEASE_S = 15.0
_LOOK_EVERY_S = 0.25
_DUE_ENTRIES = 256
_DUE_AGE_S = 20.0
_MAX_ENTRIES = 256
_MAX_BYTES = 2 << 20
_MAX_PATCHED = 32

Place = tuple[int, str]
"""A series number and an attempt."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What one seal did. ``written`` counts points laid down, those of merged blocks again."""

    pos: int
    points: int = 0
    written: int = 0
    blocks: int = 0
    dropped: int = 0
    more: bool = False


@dataclass(slots=True)
class _Plan:
    """What a seal will write."""

    old: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    cleared: list[tuple[int, str, int, int]] = field(default_factory=list)
    overwritten: dict[str, int] = field(default_factory=dict)

    def lay(self, place: Place, points: Ranked, *, closed: bool = False) -> None:
        """Cut points into blocks with their buckets; ``closed`` ones are not merged any more."""
        series, attempt = place
        pieces = -(-len(points) // BLOCK_POINTS)
        # In the middle of a curve evenly: a full block and one point would only crumble further.
        size = -(-len(points) // pieces) if closed else BLOCK_POINTS
        for piece in cut(points, size):
            self.blocks.append(_block(place, piece, FULL_TIER if closed else tier_of(len(piece))))
        self.buckets += buckets_of(series, attempt, points)

    def clear(self, place: Place, first_step: int, last_step: int) -> None:
        self.cleared.append((*place, first_step, last_step))

    def count_overwritten(self, attempt: str, count: int) -> None:
        if count:
            self.overwritten[attempt] = self.overwritten.get(attempt, 0) + count


@dataclass(slots=True)
class _Waiting:
    """A run whose head is past its cursor, and since when."""

    pos: int
    since: float


class Sealer:
    """Seals runs under the fenced reader "sealer". One thread calls it.

    ``clock`` gives wall seconds; ``owner`` names this process among those on the database.
    """

    def __init__(self, database: Database, clock: Clock, owner: str) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._waiting: dict[str, _Waiting] = {}
        self._looked_at = float("-inf")

    def run_once(self, run: str | None = None) -> bool:
        """Seal what is due (or the named run, due or not); True if there is more to do at once."""
        if run is not None:
            return self.seal(run).more
        now = self._clock()
        if 0 <= now - self._looked_at < _LOOK_EVERY_S:
            return False
        self._looked_at = now
        more = False
        for due in self._due(now):
            sealed = self.seal(due)
            self._waiting[due] = _Waiting(sealed.pos, now)
            more |= sealed.more
        if more:
            self._looked_at = float("-inf")
        return more

    def _due(self, now: float) -> list[str]:
        with self._database.read() as work:
            heads = work.log.heads()
        due: list[str] = []
        for run, head in heads.items():
            waiting = self._waiting.setdefault(run, _Waiting(0, now - _DUE_AGE_S))
            if head <= waiting.pos:
                waiting.since = now
            elif head - waiting.pos >= _DUE_ENTRIES or now - waiting.since >= _DUE_AGE_S:
                due.append(run)
        self._waiting = {run: self._waiting[run] for run in heads}
        return due

    def seal(self, run: str) -> Sealed:
        """Seal one portion of a run's log: at most 256 batches, a transaction of <= 200 ms."""
        cursor = self._database.write(
            lambda work: work.readers.open(run, READER, owner=self._owner, lease_s=_LEASE_S)
        )
        if cursor is None:
            return Sealed(0)
        try:
            return self._seal(run, cursor)
        except Fenced:
            return Sealed(cursor.pos)

    def _seal(self, run: str, cursor: Cursor) -> Sealed:
        with self._database.read() as work:
            entries = work.log.read(run, after=cursor.pos, limit=_MAX_ENTRIES, max_bytes=_MAX_BYTES)
            head = work.log.head(run)
            plan, points = _plan(work, run, entries)
        pos = entries[-1].pos if entries else cursor.pos
        dropped = self._database.write(lambda w: _commit(w, run, cursor, pos, plan))
        return Sealed(
            pos=pos,
            points=points,
            written=sum(block.summary.count for block in plan.blocks),
            blocks=len(plan.blocks),
            dropped=dropped,
            more=pos < head,
        )


def _commit(work: UnitOfWork, run: str, cursor: Cursor, pos: int, plan: _Plan) -> int:
    work.readers.move(cursor, pos)
    work.blocks.replace(run, plan.old, plan.blocks)
    work.blocks.clear_buckets(run, plan.cleared)
    work.blocks.add(run, [], plan.buckets)
    if plan.overwritten:
        _note_overwritten(work, run, plan.overwritten)
    # Whoever restores detection's snapshot replays the log from there.
    replayed_from = work.readers.snapshot_pos(run, DETECTION) or 0
    through = min(pos, replayed_from)
    return work.log.drop_through(run, through) if through > 0 else 0


def _note_overwritten(work: UnitOfWork, run: str, counts: dict[str, int]) -> None:
    """Add to the account of the attempt's source (the last one, where it has several)."""
    sources = {state.attempt: state.source for state in work.log.sources(run)}
    for attempt, count in counts.items():
        work.log.note_overwritten(run, attempt, sources[attempt], count)


def _plan(work: UnitOfWork, run: str, entries: Sequence[LogEntry]) -> tuple[_Plan, int]:
    plan = _Plan()
    keyed = gather(entries)
    numbers = {s.key: s.number for s in work.series.all(run)} if keyed else {}
    parts = {(numbers[key], attempt): found for (key, attempt), found in keyed.items()}
    tails, patches = _open_blocks(work, run)
    patched = _plan_patched(work, run, patches, plan)
    lasts = work.blocks.last_steps(run, [series for series, _ in parts])
    fresh: dict[Place, Ranked] = {}
    total = 0
    for place, found in parts.items():
        points = merge(found)
        given = sum(len(part) for part in found)
        total += given
        plan.count_overwritten(place[1], given - len(points))
        late, new = _split(points, lasts.get(place))
        if len(late):
            plan.blocks.append(_block(place, late, PATCH_TIER))
        if len(new):
            fresh[place] = new
    _plan_fresh(work, fresh, {p: t for p, t in tails.items() if p not in patched}, plan)
    return plan, total


def _split(points: Ranked, last: int | None) -> tuple[Ranked, Ranked]:
    """What lies within the sealed range, and what goes on after it."""
    if last is None:
        return points.part(0, 0), points
    return by_steps(points, None, last), by_steps(points, last + 1, None)


def _open_blocks(
    work: UnitOfWork, run: str
) -> tuple[dict[Place, list[Block]], dict[Place, list[Block]]]:
    """Tails and patches by place, each by rising step."""
    tails: dict[Place, list[Block]] = {}
    patches: dict[Place, list[Block]] = {}
    for block in work.blocks.open(run):
        kept = patches if block.tier == PATCH_TIER else tails
        kept.setdefault((block.series, block.attempt), []).append(block)
    return tails, patches


def _plan_fresh(
    work: UnitOfWork, fresh: dict[Place, Ranked], tails: dict[Place, list[Block]], plan: _Plan
) -> None:
    """Lay new points after the old, merging small blocks of the tail with them where it is due."""
    taken: dict[Place, list[int]] = {}
    for place, points in fresh.items():
        tail = tails.get(place, [])
        depth = absorbed([block.summary.count for block in tail], len(points))
        if depth:
            taken[place] = [_id(block) for block in tail[-depth:]]
    held: dict[Place, list[Ranked]] = {}
    for block in work.blocks.bodies([one for ids in taken.values() for one in ids]):
        held.setdefault((block.series, block.attempt), []).append(unpack_points(block.body))
    for place, points in fresh.items():
        if place in held:
            points = merge([*held[place], points])
            plan.old += taken[place]
            plan.clear(place, int(points.steps[0]), int(points.steps[-1]))
        plan.lay(place, points)


def _plan_patched(
    work: UnitOfWork, run: str, patches: dict[Place, list[Block]], plan: _Plan
) -> set[Place]:
    """Merge patches of earlier seals into the blocks they lie over, a bounded number at a time."""
    chosen = list(patches)[:_MAX_PATCHED]
    for place in chosen:
        patch = patches[place][0]
        touching = work.blocks.summaries(
            run,
            [place[0]],
            first_step=patch.summary.first_step,
            last_step=patch.summary.last_step,
        )
        # Other patches stay what they are: one that reaches further would lie over other blocks.
        under = [b for b in touching if b.attempt == place[1] and b.tier != PATCH_TIER]
        _plan_merged(work, place, under, patch, plan)
    return set(chosen)


def _plan_merged(
    work: UnitOfWork, place: Place, under: list[Block], patch: Block, plan: _Plan
) -> None:
    old = [*under, patch]
    bodies = {_id(b): b.body for b in work.blocks.bodies([_id(block) for block in old])}
    # The patch last: of equal ranks the later wins.
    points = merge([unpack_points(bodies[_id(block)]) for block in old])
    plan.old += [_id(block) for block in old]
    plan.count_overwritten(place[1], sum(b.summary.count for b in old) - len(points))
    plan.clear(place, int(points.steps[0]), int(points.steps[-1]))
    still_open = bool(under) and all(block.tier < FULL_TIER for block in under)
    plan.lay(place, points, closed=not still_open)


def _block(place: Place, points: Ranked, tier: int) -> Block:
    return Block(
        series=place[0],
        attempt=place[1],
        summary=summarise(points),
        rank=int(np.max(points.ranks)),
        tier=tier,
        body=pack_points(points),
    )


def _id(block: Block) -> int:
    if block.id is None:
        raise ValueError("a block that was never stored has no number")
    return block.id
