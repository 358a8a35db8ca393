"""Server time as facts of the log: every 15 s one tick per live run, none for time we were down.

Detection has no clock of its own, so that a replay judges as the first pass did; time reaches it
through these notes. Of several server processes the one that holds a run's lease ticks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.clock import Clock, wall_s
from monitor.storage.base import Database, UnitOfWork

TICK_S = 15.0
LEASE_S = 45.0
READER = "ticks"


@dataclass(slots=True)
class Ticks:
    """Appends the ticks that are due. ``owner`` names this process among its like."""

    database: Database
    owner: str
    clock: Clock = wall_s
    _last: dict[str, float] = field(default_factory=dict)

    def run_once(self) -> int:
        """Number of ticks written."""
        now = self.clock()
        with self.database.read() as uow:
            live = [run.id for run in uow.runs.live()]
        self._last = {run: at for run, at in self._last.items() if run in set(live)}
        due = [run for run in live if not 0 <= now - self._last.get(run, 0.0) < TICK_S]
        for run in due:
            self._last[run] = now
        return self.database.write(lambda uow: self._tick(uow, due, now)) if due else 0

    def _tick(self, uow: UnitOfWork, due: list[str], now: float) -> int:
        written = 0
        for run in due:
            if uow.readers.open(run, READER, owner=self.owner, lease_s=LEASE_S) is None:
                continue
            uow.log.append_note(run, "tick", {"interval_s": TICK_S}, at=now)
            written += 1
        return written
