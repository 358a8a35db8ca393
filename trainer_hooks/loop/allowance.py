"""How much of the run's time sampling in the loop may take: a share of the wall time so far."""

from __future__ import annotations

import time
from collections.abc import Callable

ANSWERS_SHARE = 0.001
ANSWERS_LIMIT_S = 30.0


class Allowance:
    """Counts what sampling took against what it may take.

    Args:
        share: of the wall time since this was made; None: no bound.
    """

    def __init__(
        self, share: float | None, monotonic: Callable[[], float] = time.perf_counter
    ) -> None:
        self._share = share
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._spent_s = 0.0
        self._expected_s: float | None = None

    def spent(self, seconds: float) -> None:
        """A sampling took this long; the next one is expected to take as long."""
        self._spent_s += seconds
        self._expected_s = seconds

    def allows(self, estimate: Callable[[], float]) -> bool:
        """Whether another sampling fits; ``estimate`` says what the first one may take."""
        if self._share is None:
            return True
        if self._expected_s is None:
            self._expected_s = estimate()
        return self._spent_s + self._expected_s <= self._share * self._elapsed_s()

    def wait_s(self) -> float:
        """Seconds until the next one fits, if everything goes on like this."""
        if not self._share:
            return 0.0
        wanted_s = (self._spent_s + (self._expected_s or 0.0)) / self._share
        return max(0.0, wanted_s - self._elapsed_s())

    def _elapsed_s(self) -> float:
        return self._monotonic() - self._began_s
