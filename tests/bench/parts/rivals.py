"""Other tools' judges on the very same series, installed into an environment of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from monitor.domain.log import LogEntry
from tests.bench.parts.baselines import points_of

RIVALS = ("trainpulse", "trainspotter", "losslint", "runmedic")
SERIES = {
    "loss": ("loss/train",),
    "val_loss": ("loss/heldout", "loss/probe"),
    "grad_norm": ("grad_norm/total",),
}
DRIVER = Path(__file__).with_name("rival_driver.py")


class Rivals:
    """Asks the driver's process; which of them could be installed is ``names``."""

    def __init__(self, process: subprocess.Popen[str], names: Sequence[str]) -> None:
        self._process = process
        self.names = tuple(names)
        self.errors: dict[str, str] = {}

    def alarms(self, log: Sequence[LogEntry]) -> dict[str, list[int]]:
        """Steps at which each warns; nothing from one that failed, whose error is kept."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return {}
        stdin.write(json.dumps(self._series(log)) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        for name in self.names:
            if isinstance(answer[name], str):
                self.errors.setdefault(name, answer[name])
        return {n: answer[n] for n in self.names if isinstance(answer[n], list)}

    def _series(self, log: Sequence[LogEntry]) -> dict[str, list[tuple[int, float]]]:
        series = {}
        for name, keys in SERIES.items():
            found = next((p for p in (points_of(log, key) for key in keys) if p), ())
            series[name] = list(found)
        rates = sorted({k for e in log for f in e.frames for k in f.columns if k[:3] == "lr/"})
        series["lr"] = list(points_of(log, rates[0])) if rates else []
        return {name: points for name, points in series.items() if points}


@contextmanager
def rivals() -> Iterator[Rivals]:
    """Install them (a package index is needed) and start the driver."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        done = [name for name in RIVALS if _installed(python, name)]
        process = subprocess.Popen(
            [python, str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield Rivals(process, done)
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _installed(python: str, name: str) -> bool:
    words = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400)
    if done.returncode:
        sys.stderr.write(f"{name} could not be installed: {done.stderr.strip()[-300:]}\n")
    return not done.returncode
