"""The demo's other processes: started, waited for, and always ended."""

from __future__ import annotations

import base64
import os
import secrets
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from monitor.cli._receiver import SECRET_VARIABLE
from monitor.errors import WatchkeeperError

START_S = 30.0
STOP_S = 8.0


class CannotStart(WatchkeeperError):
    title = "A process did not start"


class Processes:
    """Children that end with the ``with`` block, last started first."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, words: list[str], env: dict[str, str], log: Path) -> str:
        """Start ``python -m words``; give back its first line on stdout, or fail with its log.

        The child has a session of its own: Ctrl-C reaches us, and we end the children in order.
        """
        with log.open("ab") as err:
            child = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *words],
                stdout=subprocess.PIPE,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        self._running.append(child)
        line = _first_line(child)
        if not line:
            tail = log.read_text("utf-8", "replace")[-2000:].strip()
            raise CannotStart(f"The {name} did not start.", hint=tail)
        return line

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in reversed(self._running):
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask, wait, and insist."""
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _first_line(child: subprocess.Popen[bytes]) -> str:
    """What it says once it is ready; empty where it ended or says nothing in time."""
    if child.stdout is None:
        return ""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and child.poll() is None:
        ready, _, _ = select.select([child.stdout], [], [], 0.2)
        if ready:
            return child.stdout.readline().decode("utf-8", "replace").strip()
    return ""


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where the webhook receiver listens, and the secret it checks signatures with."""

    url: str
    secret: str

    def read(self) -> dict[str, int]:
        """Its counts: ``delivered``, ``forged``, ``changed``."""
        counts: dict[str, int] = httpx.get(self.url, trust_env=False, timeout=10).json()
        return counts


def start_receiver(processes: Processes, folder: Path) -> Receiver:
    """A receiver on a free port, with a fresh secret."""
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    env = {**_environment(), SECRET_VARIABLE: secret}
    port = processes.start(
        "webhook receiver", ["monitor.cli._receiver"], env, folder / "receiver.log"
    )
    return Receiver(f"http://127.0.0.1:{port}/", secret)


def start_server(processes: Processes, folder: Path, port: int, receiver: Receiver) -> str:
    """The server on its embedded database, telling the receiver; its address."""
    env = {
        **_environment(),
        "WATCHKEEPER_WEBHOOK_URL": receiver.url,
        "WATCHKEEPER_WEBHOOK_SECRET": receiver.secret,
        "WATCHKEEPER_WEBHOOK_ALLOW_PRIVATE": '["127.0.0.0/8"]',
        "WATCHKEEPER_LOG_LEVEL": "WARNING",
    }
    words = ["monitor.cli", "serve", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--data-dir", str(folder)]
    line = processes.start("server", words, env, folder / "server.log")
    return line.rpartition(" ")[2]


def _environment() -> dict[str, str]:
    """Ours, without settings meant for another server; the demo is the same for everybody."""
    kept: dict[str, Any] = {
        name: value for name, value in os.environ.items() if not name.startswith("WATCHKEEPER_")
    }
    return kept
