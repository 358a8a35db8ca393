"""Sending by Apprise, in a process of its own.

Apprise's plugins choose their own addresses, follow redirects, write to the log what they send
where, and take as long as they like. In a child process none of that reaches us: it is given its
orders on standard input, watches every connection it makes (``apprise_child``), and is ended when
its time is up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from monitor.senders.http import Answer

LONGEST_S = 20.0
"""Loading Apprise takes a second or two of it; below the time a message is claimed for."""
CHILD = "monitor.senders.apprise_child"
KEPT_ENVIRONMENT = ("PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONPATH", "HOME")


@dataclass(slots=True)
class AppriseSender:
    """Sends one message at a time. ``allow_private``: networks that may be gone to all the same."""

    allow_private: Sequence[str] = ()
    longest_s: float = LONGEST_S

    def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST"
    ) -> Answer:
        """Send once. Never raises. 200 is success, as Apprise tells no numbers."""
        return self._ordered({"url": url, **json.loads(body)})

    def examine(self, url: str) -> str:
        """Why nothing is sent there; empty where it is tried."""
        answer = self._ordered({"url": url, "only_look": True})
        return answer.error if answer.refused else ""

    def _ordered(self, what: Mapping[str, Any]) -> Answer:
        if find_spec("apprise") is None:
            return Answer(None, "Apprise is not installed", refused=True)
        orders = {"allow": list(self.allow_private), **what}
        try:
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-m", CHILD],
                input=json.dumps(orders).encode(),
                capture_output=True,
                timeout=self.longest_s,
                check=False,
                env={name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
            )
        except subprocess.TimeoutExpired:
            return Answer(None, "timed out")
        except OSError as error:
            return Answer(None, f"could not be started ({type(error).__name__})")
        return _understood(done.stdout)


def _understood(said: bytes) -> Answer:
    try:
        told: dict[str, Any] = json.loads(said)
    except ValueError:
        return Answer(None, "Apprise ended without a word")
    text = str(told.get("said") or "")
    if told.get("sent"):
        return Answer(200, "", said=text)
    return Answer(None, text or "Apprise could not send it", refused=bool(told.get("refused")))
