"""Batches as hooks send them, rendered fast: the generator must not cost what is measured.

Values are those of a recorded run, as float32 like everything a device measures. Cadences are
mixed: some series at every step, some at every fifth, most once a batch.
"""

from __future__ import annotations

import csv
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

RECORDED = Path(__file__).parents[2] / "runs" / "real" / "healthy_modded_124m_adam_wsd.csv.gz"
STEPS = 20
STEP_S = 0.09
VARIANTS = 16

_GROUPS = ("emb", "head", "attn_qkv", "attn_o", "mlp_in", "mlp_out", "norm", "other", "total")
EVERY_STEP = (
    "loss/train",
    "lr/0",
    "tokens_seen",
    "step_s",
    "tokens_per_s",
    "data_wait_s",
    "data_wait_share",
    "repeat_share",
    "clip_share",
    "hook_share",
    *(f"grad_norm/{group}" for group in _GROUPS),
    *(f"activation_rms/layer{i}" for i in range(6)),
)
EVERY_FIFTH = tuple(f"grad_rms/layer{i}.{part}" for i in range(25) for part in ("attn", "mlp"))
ONCE = (
    *(f"weight_norm/{group}" for group in _GROUPS),
    *(f"effective_lr/{group}" for group in _GROUPS),
    "loss/probe",
    "entropy/probe",
    *(f"weight_rms_of/layer{i // 8}.{i % 8}" for i in range(280)),
)
CADENCES = ((EVERY_STEP, 1), (EVERY_FIFTH, 5), (ONCE, STEPS))
LEVELS = {
    "loss": 3.0,
    "lr": 3e-4,
    "tokens_seen": 1e9,
    "step_s": STEP_S,
    "tokens_per_s": 1e5,
    "data_wait_s": 1e-3,
    "data_wait_share": 0.01,
    "repeat_share": 0.0,
    "clip_share": 0.5,
    "hook_share": 0.004,
    "grad_norm": 1.0,
    "weight_norm": 40.0,
    "effective_lr": 1e-3,
    "entropy": 3.0,
}
SERIES = sum(len(keys) for keys, _ in CADENCES)
POINTS = sum(len(keys) * (STEPS // every) for keys, every in CADENCES)


def recorded() -> np.ndarray:
    """All numbers of a recorded run, in a row."""
    with gzip.open(RECORDED, "rt") as file:
        rows = list(csv.reader(file))[1:]
    cells = [cell for row in rows for cell in row if cell]
    return np.array(cells[: 1 << 20], np.float64).astype(np.float32).astype(np.float64)


def columns(rng: np.random.Generator, values: np.ndarray) -> list[str]:
    """The columns of each cadence as JSON text."""
    texts = []
    for keys, every in CADENCES:
        rows = STEPS // every
        at = rng.integers(0, len(values) - rows, len(keys))
        drawn = {key: values[i : i + rows].tolist() for key, i in zip(keys, at, strict=True)}
        for key in drawn:
            level = LEVELS.get(key.partition("/")[0])
            if level is not None:  # what is judged must be sound, or every step is an alert
                drawn[key] = (level * (1 + rng.normal(0, 0.01, rows))).tolist()
        texts.append(json.dumps(drawn))
    return texts


class Bodies:
    """Renders the batches of one run; ``variants`` differ in their values."""

    def __init__(self, run: str, began: float, variants: list[list[str]]) -> None:
        self.run = run
        self._began = began
        self._variants = variants

    def batch(self, seq: int) -> bytes:
        first = seq * STEPS
        frames = []
        for (_, every), text in zip(
            CADENCES, self._variants[seq % len(self._variants)], strict=True
        ):
            steps = range(first + every - 1, first + STEPS, every)
            times = ",".join(f"{self._began + step * STEP_S:.6f}" for step in steps)
            frames.append(f'{{"steps":{list(steps)},"times":[{times}],"columns":{text}}}')
        last = first + STEPS - 1
        head = (
            f'{{"v":1,"run":"{self.run}","attempt":"a","source":"s","seq":{seq},'
            f'"sent_at":{time.time()},"through_step":{last},'
        )
        records = self._start() if seq == 0 else ""
        return f'{head}"records":[{records}],"frames":[{",".join(frames)}]}}'.encode()

    def _start(self) -> str:
        at = self._began
        start = {"kind": "run_start", "at": at, "name": self.run, "planned_steps": 1_000_000}
        attempt = {"kind": "attempt_start", "at": at, "ordinal": 0, "first_step": 0}
        return f"{json.dumps(start)},{json.dumps(attempt)}"


def variants(seed: int = 0, count: int = VARIANTS) -> list[list[str]]:
    rng, values = np.random.default_rng(seed), recorded()
    return [columns(rng, values) for _ in range(count)]


@dataclass(slots=True)
class Connection:
    """One kept-alive HTTP/1.1 connection that says no more than it must."""

    host: str
    port: int
    _socket: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self._socket = socket.create_connection((self.host, self.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: bytes) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        return self._answer()

    def _answer(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, rest = data.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(data[:600].decode("utf-8", "replace"))
        lengths = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        length = int(lengths[0].split(b":")[1])
        while len(rest) < length:
            rest += self._receive()
        return rest

    def _receive(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server hung up")
        return data

    def close(self) -> None:
        self._socket.close()


def burst(host: str, port: int, runs: list[str], batches: int) -> tuple[float, list[float]]:
    """Each run's batches over a connection of its own, in order; seconds, and each wait."""
    texts = variants()
    waits: list[float] = []
    failed: list[BaseException] = []

    def send(run: str) -> None:
        try:
            waits.extend(_send(Connection(host, port), Bodies(run, time.time(), texts), batches))
        except BaseException as error:  # told by whoever joins
            failed.append(error)

    threads = [threading.Thread(target=send, args=(run,)) for run in runs]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return time.perf_counter() - began, waits


def _send(connection: Connection, bodies: Bodies, batches: int) -> Iterator[float]:
    for seq in range(batches):
        body = bodies.batch(seq)
        began = time.perf_counter()
        receipt = connection.post("/api/v1/batches", body)
        yield time.perf_counter() - began
        if f'"stored":{POINTS}'.encode() not in receipt:
            raise RuntimeError(receipt.decode())
    connection.close()
