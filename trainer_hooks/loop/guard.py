"""Nothing that goes wrong in a hook reaches the training loop: it is counted, and said once."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

log = logging.getLogger("trainer_hooks")

LOG_INTERVAL_S = 60.0
FAILURES_TO_SWITCH_OFF = 3


class Errors:
    """Counts what was caught; logs at most once a minute; tells when one part has to go."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count
        self._logged_at = float("-inf")
        self._unsaid = 0
        self._streaks: dict[str, int] = {}

    def note(self, where: str, error: Exception) -> None:
        """An exception was caught in ``where``."""
        self._count()
        now = time.monotonic()
        if now - self._logged_at < LOG_INTERVAL_S:
            self._unsaid += 1
            return
        log.warning(
            "%s failed, training goes on (%d more since the last message)",
            where,
            self._unsaid,
            exc_info=error,
        )
        self._logged_at, self._unsaid = now, 0

    def note_part(self, part: str, error: Exception) -> bool:
        """The same for a part that can be switched off: True after three failures in a row."""
        self.note(part, error)
        self._streaks[part] = self._streaks.get(part, 0) + 1
        return self._streaks[part] >= FAILURES_TO_SWITCH_OFF

    def worked(self, part: str) -> None:
        """The part worked: its row of failures is over."""
        self._streaks.pop(part, None)


class Guarded(Protocol):
    """What has guarded methods: where errors go, and what its hooks have cost (s)."""

    errors: Errors
    hook_s: float
    pid: int


S = TypeVar("S", bound=Guarded)
P = ParamSpec("P")
R = TypeVar("R")


def guarded(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R | None]:
    """A method that never raises an ``Exception``, is timed, and does nothing in a forked child."""

    @functools.wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self.pid != os.getpid():
            return None
        began = time.perf_counter()
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.errors.note(method.__name__, error)
            return None
        finally:
            self.hook_s += time.perf_counter() - began

    return cast(Callable[Concatenate[S, P], R | None], call)
