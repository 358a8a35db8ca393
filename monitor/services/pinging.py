"""The dead-man's ping: while the server does its work it says so to a place that misses it.

A monitor dies with its box; only somebody elsewhere can tell. Any address of the healthchecks kind
will do: a GET is a sign of life, one to ``.../fail`` says that something is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monitor.services.delivery import Send
from monitor.services.workers import Health

FAILURES = 3
"""A worker that failed so often in a row is not doing its work."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Ping:
    """Sends one ping when asked to. ``url`` may hold a secret and is never logged."""

    url: str
    send: Send
    health: Callable[[], Sequence[Health]]
    _failed: bool = False

    def run_once(self) -> None:
        """Never raises; a ping that does not arrive is what the other side waits for."""
        broken = [worker.name for worker in self.health() if worker.failures >= FAILURES]
        url = f"{self.url.rstrip('/')}/fail" if broken else self.url
        body = f"not working: {', '.join(broken)}".encode() if broken else b""
        answer = self.send(url, body, {"user-agent": "watchkeeper"}, method="POST")
        failed = answer.status is None or answer.status >= 400
        if failed and not self._failed:
            log.warning("the ping did not arrive: %s", answer.status or "no answer")
        self._failed = failed
