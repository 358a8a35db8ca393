"""A real ``watchkeeper serve`` to be measured from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens, and its process."""

    host: str
    port: int
    pid: int

    def cpu_s(self) -> float:
        """Processor time used so far, seconds."""
        return cpu_s(self.pid)

    def peak_mib(self) -> int:
        """The most memory it ever held."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return int(found.group(1)) // 1024 if found else 0


def cpu_s(pid: int) -> float:
    """Processor time a process has used, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def serving(
    folder: Path, url: str | None = None, *, program: list[str] | None = None
) -> Iterator[Server]:
    """A server on a free port, over SQLite in ``folder`` or the database of ``url``."""
    environment = os.environ | {"WATCHKEEPER_DATA_DIR": str(folder), "WATCHKEEPER_PORT": "0"}
    if url:
        environment["WATCHKEEPER_DATABASE_URL"] = url
    command = [*(program or [sys.executable]), "-m", "monitor.cli", "serve"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://([^:/]+):(\d+)", said)
        if found is None:
            raise RuntimeError(f"no address in {said!r}")
        yield Server(found.group(1), int(found.group(2)), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
