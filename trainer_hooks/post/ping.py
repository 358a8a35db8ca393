"""The dead-man's ping: a sign of life to an address elsewhere that misses it when it stops.

Any address of the healthchecks kind: a GET is a sign of life, a POST to ``.../fail`` says that the
run failed. The sender's thread says when; each ping has a short-lived thread of its own, so that an
address that hangs holds nothing up.
"""

from __future__ import annotations

import logging
import threading
import time
from urllib.parse import urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from trainer_hooks.transport import is_loopback

EVERY_S = 60.0
TIMEOUT_S = 5.0
LAST_S = 1.0

log = logging.getLogger("trainer_hooks")


class Ping:
    """Pings ``url`` at most every ``every_s``. Never raises, never waits for more than ``fail``'s
    second; the address may be a secret and is not logged.
    """

    def __init__(self, url: str, *, proxies: bool = True, every_s: float = EVERY_S) -> None:
        self._url = url.rstrip("/")
        self._proxies = proxies
        self._every_s = every_s
        self._due = 0.0
        self._thread: threading.Thread | None = None
        self._has_warned = False

    def beat(self) -> None:
        """A sign of life, if it is time for one and the last one is not still on its way."""
        now = time.monotonic()
        if now < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = now + self._every_s
        self._spawn(Request(self._url))  # noqa: S310 - make_ping has looked

    def fail(self) -> None:
        """The run failed; waits a second at most for the word to leave."""
        self._spawn(Request(f"{self._url}/fail", data=b"", method="POST"))  # noqa: S310
        if self._thread is not None:
            self._thread.join(LAST_S)

    def _spawn(self, request: Request) -> None:
        try:
            self._thread = threading.Thread(
                target=self._send, args=(request,), name="watchkeeper-ping", daemon=True
            )
            self._thread.start()
        except RuntimeError:  # no more threads: the interpreter is ending
            self._thread = None

    def _send(self, request: Request) -> None:
        try:
            with self._opener().open(request, timeout=TIMEOUT_S):
                self._has_warned = False
        except Exception as error:
            if not self._has_warned:
                log.warning("the ping did not arrive (%s); training goes on", type(error).__name__)
            self._has_warned = True

    def _opener(self) -> OpenerDirector:
        direct = not self._proxies or is_loopback(urlsplit(self._url).hostname or "")
        return build_opener(ProxyHandler({})) if direct else build_opener()


def make_ping(url: str | None, *, proxies: bool) -> Ping | None:
    """A ping for an address; None without one, or for one that is not of the web."""
    if not url:
        return None
    if urlsplit(url).scheme not in ("http", "https"):
        log.warning("ping_url is no http(s) address; nothing is pinged")
        return None
    return Ping(url, proxies=proxies)
