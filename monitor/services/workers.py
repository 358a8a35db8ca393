"""A small supervisor: each worker is a thread that runs one function when woken or when time is up.

A worker that fails is logged and tried again, later each time; one that is told to stop finishes
what it is doing. Nothing here knows what the work is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from monitor.clock import Clock, monotonic_s

_log = logging.getLogger("monitor.workers")

FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 15.0
YIELDED_SHARE = 3.0
LONGEST_YIELD_S = 3.0

Work = Callable[[], object]
"""Does a portion of work. A true value means there is more to do at once."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker is doing: seconds its last round took, failures in a row, rounds so far."""

    name: str
    rounds: int
    failures: int
    last_round_s: float
    last_error: str


@dataclass(slots=True)
class Worker:
    """One thread. ``interval_s`` is the longest pause between two rounds.

    One that ``follows_log`` is woken whenever a log has moved. While ``pressed`` says that batches
    wait to be acknowledged it rests three times as long as it worked, 3 s at most: what is on disk
    can wait, a trainer's spool fills.
    """

    name: str
    work: Work
    interval_s: float
    clock: Clock = monotonic_s
    follows_log: bool = False
    pressed: Callable[[], bool] = lambda: False
    _wake: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _rounds: int = 0
    _failures: int = 0
    _last_round_s: float = 0.0
    _last_error: str = ""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"watchkeeper-{self.name}")
        self._thread.daemon = True
        self._thread.start()

    def wake(self) -> None:
        """There is something to do. Safe from any thread, returns at once."""
        self._wake.set()

    def stop(self) -> None:
        """Ask for the end; ``join`` waits for it."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended within the time."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def health(self) -> Health:
        return Health(self.name, self._rounds, self._failures, self._last_round_s, self._last_error)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            more, pause_s = self._round()
            if not more:
                self._wait(pause_s)
            if self.pressed():
                self._stop.wait(min(self._last_round_s * YIELDED_SHARE, LONGEST_YIELD_S))

    def _round(self) -> tuple[bool, float]:
        began = self.clock()
        try:
            more = bool(self.work())
        except Exception as error:
            self._failures += 1
            self._last_error = f"{type(error).__name__}: {error}"
            pause_s = min(FIRST_BACKOFF_S * 2 ** (self._failures - 1), LONGEST_BACKOFF_S)
            if not self._stop.is_set():
                _log.exception("%s failed, again in %.2f s", self.name, pause_s)
            return False, pause_s
        self._failures = 0
        self._rounds += 1
        self._last_round_s = self.clock() - began
        return more, self.interval_s

    def _wait(self, pause_s: float) -> None:
        """After a failure a wake-up does not shorten the pause: it would be a busy loop."""
        if self._failures:
            self._stop.wait(pause_s)
        else:
            self._wake.wait(pause_s)


@dataclass(slots=True)
class Supervisor:
    """All workers of a process: started together, stopped together."""

    workers: Sequence[Worker]

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def wake(self, run: str, pos: int) -> None:
        """For ``Database.on_append``: a log has moved."""
        for worker in self.workers:
            if worker.follows_log:
                worker.wake()

    def stop(self, timeout_s: float = 2.0) -> list[str]:
        """Stop all; the names of those that did not end in time."""
        for worker in self.workers:
            worker.stop()
        end = time.monotonic() + timeout_s
        late = [w.name for w in self.workers if not w.join(max(0.0, end - time.monotonic()))]
        if late:
            _log.warning("did not stop in %.1f s: %s", timeout_s, ", ".join(late))
        return late

    def health(self) -> list[Health]:
        return [worker.health() for worker in self.workers]
