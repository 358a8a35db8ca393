"""Running, stalled or lost: judged by when things arrived here, since a trainer's clock may lie.

- lost: nothing arrived for 90 s, not even a heartbeat;
- stalled: heartbeats arrive, but no new step for 5 min (and for ten of the run's own steps), and no
  evaluation, checkpoint or sampling is under way or has just ended;
- the ends a client declares (finished, failed, ...) always win, and only the client declares them.

The time this server was down counts for nothing: silence begins when the server began to listen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.clock import Clock, wall_s
from monitor.domain.run import LIVE_STATES, Run, RunState
from monitor.storage.base import Database, UnitOfWork
from trainer_hooks.wire import Phase

LOST_S = 90.0
STALLED_S = 300.0
STALLED_STEPS = 10.0
LONGEST_PHASE_S = 4 * 3600.0
"""A phase nobody ended does not excuse a silent loop for ever."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The last step heard of, when it was first heard of here, and how long a step takes."""

    step: int | None
    since: float
    step_s: float = 0.0

    @property
    def patience_s(self) -> float:
        """How long no step is no stall yet."""
        return max(STALLED_S, STALLED_STEPS * self.step_s)

    def moved_to(self, step: int | None, now: float) -> Progress:
        """Another step was heard of; one that is lower was gone back to and tells no pace."""
        done = (step or 0) - (self.step or 0)
        return Progress(step, now, (now - self.since) / done if done > 0 else self.step_s)


def judge(run: Run, progress: Progress, *, heard_at: float, now: float, busy: bool) -> RunState:
    """The state a live run is in. Pure."""
    if now - heard_at >= LOST_S:
        return "lost"
    if now - progress.since >= progress.patience_s and not busy:
        return "stalled"
    return "running"


@dataclass(slots=True)
class Presence:
    """Keeps the states of live runs true."""

    database: Database
    clock: Clock = wall_s
    _began: float | None = None
    _progress: dict[str, Progress] = field(default_factory=dict)

    def run_once(self) -> int:
        """Number of runs whose state changed."""
        now = self.clock()
        if self._began is None or now < self._began:
            self._began = now
        with self.database.read() as uow:
            moves = [move for run in uow.runs.live() if (move := self._move(uow, run, now))]
        if not moves:
            return 0
        return self.database.write(lambda uow: _apply(uow, moves, now))

    def _move(self, uow: UnitOfWork, run: Run, now: float) -> tuple[str, RunState] | None:
        progress = self._note_progress(run, now)
        heard_at = max(run.last_seen_at, self._began or 0.0)
        quiet = now - progress.since >= progress.patience_s
        busy = quiet and _is_busy(uow, run, now)
        state = judge(run, progress, heard_at=heard_at, now=now, busy=busy)
        if run.state == "stalled" and state == "running" and progress.since == self._began:
            return None  # No step seen yet since this server began: it may still be stalled.
        return (run.id, state) if state != run.state else None

    def _note_progress(self, run: Run, now: float) -> Progress:
        known = self._progress.get(run.id)
        if known is None:
            since = self._began if run.created_at < (self._began or now) else run.created_at
            known = Progress(run.last_step, since or now)
        elif known.step != run.last_step:
            known = known.moved_to(run.last_step, now)
        self._progress[run.id] = known
        return known


def _is_busy(uow: UnitOfWork, run: Run, now: float) -> bool:
    here = now + run.clock_skew_s  # phases are told by the trainer's clock
    return any(_excuses(phase, here) for _, phase in uow.events.phases(run.id))


def _excuses(phase: Phase, now: float) -> bool:
    """Whether no step is to be expected: in a phase, or right after it."""
    if phase.name not in {"evaluation", "checkpoint", "sampling"}:
        return False
    if phase.end_at is None:
        return now - phase.begin_at < LONGEST_PHASE_S
    return now - phase.end_at < STALLED_S


def _apply(uow: UnitOfWork, moves: list[tuple[str, RunState]], now: float) -> int:
    changed = 0
    for run_id, state in moves:
        run = uow.runs.get(run_id)
        if run is None or run.state not in LIVE_STATES or run.state == state:
            continue
        uow.runs.set_state(run_id, state, at=now, error=None)
        uow.log.append_note(run_id, "config", {"state": state}, at=now)
        changed += 1
    return changed
