"""Who wants to know that a log has grown."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

Callback = Callable[[str, int], None]


class Watchers:
    """Callbacks for (run, position); one that raises is logged and does not stop the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: tuple[Callback, ...] = ()

    def add(self, callback: Callback) -> None:
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def tell(self, appended: Mapping[str, int]) -> None:
        for callback in self._callbacks:
            for run, pos in appended.items():
                try:
                    callback(run, pos)
                except Exception:
                    logger.exception("a watcher of the log failed")
