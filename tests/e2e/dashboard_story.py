"""A small run as a trainer would send it, for the browser to look at; names are hostile."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_hooks.wire import (
    Answer,
    AttemptStart,
    Batch,
    Cell,
    Event,
    Frame,
    Phase,
    Record,
    RunStart,
    SeriesSpec,
    encode,
)

IMG = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
BIDI = "\u202egnp.exe{{7*7}}"
HOSTILE = (IMG, SCRIPT, BIDI)
ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class ServerProcess:
    """A real ``watchkeeper serve`` in a process of its own."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[str] = field(init=False)
    url: str = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "monitor.cli", "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--data-dir", str(self.folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, line
        self.url = line[line.index("http://") :].strip()
        self.port = int(self.url.rsplit(":", 1)[1])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def post(self, batch: Batch) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/api/v1/batches",
            data=encode(batch),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)


@contextmanager
def serving(folder: Path) -> Generator[ServerProcess]:
    """Start a server, stop it afterwards."""
    server = ServerProcess(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass(slots=True)
class Story:
    """A run that is sent piece by piece."""

    server: ServerProcess
    run: str
    name: str
    seq: int = 0

    def send(
        self,
        steps: Sequence[int],
        columns: dict[str, list[Cell]] | None = None,
        records: Sequence[Record] = (),
    ) -> None:
        now = time.time()
        values = columns or {
            "loss/train": [2 + 3 * math.exp(-step / 60) for step in steps],
            "weight_norm/total": [10 + step / 50 for step in steps],
        }
        times = [now - (max(steps) - step) for step in steps]
        frames = [Frame(list(steps), times, values)] if steps else []
        through = max(steps) if steps else None
        receipt = self.server.post(
            Batch(self.run, "a1", "s0", self.seq, now, through, frames, list(records))
        )
        assert receipt["refused_values"] == 0, receipt
        self.seq += 1

    def begin(self, last: int = 199) -> None:
        """Facts, series and steps 0 to ``last``, with a checkpoint at 100."""
        now = time.time()
        start = RunStart(self.name, now, planned_steps=1000, price_per_hour=2.0, tags=[IMG])
        specs = [
            SeriesSpec("loss/train", "loss", "train", family="loss", better="lower"),
            SeriesSpec("weight_norm/total", "weight_norm", "total", family="weights"),
            SeriesSpec("repeat_share", "repeat_share", unit="share", family="data"),
            SeriesSpec(f"{IMG}/{SCRIPT}", IMG, SCRIPT, family="other", help=SCRIPT),
        ]
        saved = Phase("c1", "checkpoint", 100, now, 100, now, path=f"ckpt/{IMG}", text=SCRIPT)
        noted = Event("note", 120, now, text=SCRIPT + BIDI)
        self.send(
            range(last + 1),
            records=[start, AttemptStart(0, 0, now), *specs, saved, noted],
        )
        self.send(range(0, last + 1, 10), {f"{IMG}/{SCRIPT}": [1.0] * len(range(0, last + 1, 10))})

    def repeat(self, first: int, last: int) -> None:
        """Every row was served before: an alert is due."""
        steps = list(range(first, last + 1))
        columns: dict[str, list[Cell]] = {
            "loss/train": [2.0 for _ in steps],
            "repeat_share": [1.0 for _ in steps],
        }
        self.send(steps, columns)

    def sample(self, step: int, texts: dict[str, str]) -> None:
        """One sampling: an answer to each prompt, three letters a token."""
        now = time.time()
        records: list[Record] = [Phase(f"s{step}", "sampling", step, now, step, now)]
        for number, (prompt, text) in enumerate(texts.items()):
            tokens = [text[i : i + 3] for i in range(0, len(text), 3)]
            records.append(
                Answer(
                    f"sampling-{step}",
                    f"p{number}",
                    f"hash{number}",
                    prompt,
                    text,
                    step,
                    now,
                    token_ids=list(range(len(tokens))),
                    token_texts=tokens,
                    token_logprobs=[math.log(0.2 + 0.7 * (i % 2)) for i in range(len(tokens))],
                    stop_reason="end_token",
                )
            )
        self.send([], records=records)
