"""The live stream over a real connection: resumption across reconnects, headers, goodbye."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import Running
from tests.fixtures.batches import batch, body, opening

Told = tuple[str, str, dict]  # type: ignore[type-arg]


def events(answer: httpx.Response) -> Iterator[Told]:
    """(event, id, data) as they come."""
    name, ident, data = "message", "", ""
    for line in answer.iter_lines():
        if not line:
            if data:
                yield name, ident, json.loads(data)
            name, data = "message", ""
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("id: "):
            ident = line[4:]
        elif line.startswith("data: "):
            data += line[6:]


def listen(
    server: Running, until_step: int, headers: dict[str, str], query: str
) -> tuple[list[int], str]:
    """Steps heard until a step at least, and the last id heard with them."""
    steps: list[int] = []
    last = headers.get("last-event-id", "")
    with server.client.stream("GET", f"/api/v1/stream?{query}", headers=headers) as answer:
        assert answer.status_code == 200
        for name, ident, data in events(answer):
            assert name != "resync"
            if name == "points":
                steps += [row[0] for row in data["rows"]["loss/train"]]
                last = ident
                if steps[-1] >= until_step:
                    break
    return steps, last


def test_reconnects_with_the_last_id_lose_and_double_nothing(server: Running) -> None:
    server.send(batch("r", 0, [0], records=opening("r")))
    cursor = server.get("/api/v1/runs/r/points?key=loss/train")["cursor"]
    stop = threading.Event()

    def train() -> None:
        for seq in range(1, 151):
            if stop.is_set():
                return
            server.send(batch("r", seq, [seq * 2 - 1, seq * 2]))

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        heard, last = listen(server, 60, {}, f"run=r&cursor={cursor}")
        while heard[-1] < 300:
            more, last = listen(server, min(300, heard[-1] + 70), {"last-event-id": last}, "run=r")
            heard += more
    finally:
        stop.set()
        trainer.join(30)
    assert heard == list(range(1, 301))


def test_what_a_proxy_must_know_is_in_the_headers(site: Running) -> None:
    headers = {"accept-encoding": "gzip, br"}
    with site.client.stream("GET", "/api/v1/stream", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in answer.headers
        first = next(answer.iter_bytes())
    assert first.startswith(b":")


def test_an_id_nobody_gave_starts_over(site: Running) -> None:
    for ident, query in (("junk", "run=r"), ("e30", "")):
        headers = {"last-event-id": ident}
        with site.client.stream("GET", f"/api/v1/stream?{query}", headers=headers) as answer:
            assert next(events(answer))[0] == "resync"


def test_a_point_is_told_within_a_second(site: Running) -> None:
    site.send(batch("quick", 0, [0], records=opening("quick")))
    waits = []
    with site.client.stream("GET", "/api/v1/stream?run=quick") as answer:
        said = events(answer)
        for seq in range(1, 11):
            began = time.monotonic()
            site.send(batch("quick", seq, [seq]))
            while (heard := next(said))[0] != "points":
                pass
            assert heard[2]["rows"]["loss/train"][0][0] == seq
            waits.append(time.monotonic() - began)
    assert sorted(waits)[-2] < 1.0, waits


def test_readers_that_leave_leave_nothing_behind(site: Running) -> None:
    for _ in range(50):
        with site.client.stream("GET", "/api/v1/stream?run=r") as answer:
            next(answer.iter_bytes())
    end = time.monotonic() + 20
    while len(site.parts.live) > 0:
        assert time.monotonic() < end, len(site.parts.live)
        time.sleep(0.1)


@contextmanager
def started(folder: Path, **environment: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """``watchkeeper serve`` as a process of its own, once it has said where it listens."""
    command = [sys.executable, "-m", "monitor.cli", "serve", "--port", "0"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*command, "--data-dir", str(folder)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            said = (folder / "log").read_text()
            assert line.startswith("Watchkeeper listens on http://127.0.0.1:"), said
            yield process, line.split()[-1]
        finally:
            process.kill()


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_server_with_five_open_streams_stops_in_order(
    tmp_path: Path, kind: signal.Signals
) -> None:
    said: list[list[str]] = [[] for _ in range(5)]
    ready = threading.Barrier(6)

    def follow(url: str, heard: list[str]) -> None:
        with httpx.stream("GET", f"{url}/api/v1/stream", timeout=30, trust_env=False) as answer:
            lines = answer.iter_lines()
            next(lines)
            ready.wait(20)
            heard.extend(line for line in lines if line.startswith("event"))

    with started(tmp_path) as (process, url):
        threads = [threading.Thread(target=follow, args=(url, heard)) for heard in said]
        for thread in threads:
            thread.start()
        ready.wait(20)
        began = time.monotonic()
        process.send_signal(kind)
        status = process.wait(10)
        took_s = time.monotonic() - began
        for thread in threads:
            thread.join(10)
    assert status == 0
    assert took_s <= 5.0
    assert [heard[-1] for heard in said] == ["event: bye"] * 5


def test_a_reader_that_stops_reading_holds_nobody_up(tmp_path: Path) -> None:
    """Neither ingest nor the stop waits for it, and the server keeps nothing for it."""
    columns = {f"s{k}": [1.0] * 20 for k in range(200)}
    with started(tmp_path) as (process, url):
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.sendall(b"GET /api/v1/stream?run=r HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
                for seq in range(40):
                    steps = [seq * 20 + k for k in range(20)]
                    answer = client.post(
                        "/api/v1/batches",
                        content=body(batch("r", seq, steps, columns=columns)),
                        headers={"content-type": "application/json"},
                    )
                    assert answer.status_code == 200
                    assert answer.elapsed.total_seconds() < 5
            began = time.monotonic()
            process.terminate()
            status = process.wait(10)
            took_s = time.monotonic() - began
    assert status == 0
    assert took_s <= 5.0


def test_no_secret_reaches_a_log(tmp_path: Path) -> None:
    """Neither our log nor the server's own repeats a token, from header, cookie, body or query."""
    marker = "marker-4711-secret"
    environment = {
        "WATCHKEEPER_READ_TOKEN": marker,
        "WATCHKEEPER_INGEST_TOKEN": marker + "-in",
        "WATCHKEEPER_LOG_LEVEL": "DEBUG",
    }
    ingesting = {"content-type": "application/json", "authorization": f"Bearer {marker}-in"}
    with (
        started(tmp_path, **environment) as (process, url),
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        statuses = [
            client.get("/api/v1/runs", headers={"authorization": f"Bearer {marker}"}),
            client.get("/api/v1/runs", headers={"authorization": "Bearer wrong"}),
            client.get(f"/api/v1/runs?token={marker}"),
            client.get(f"/api/v1/runs?q={marker}"),
            client.post("/login", json={"token": marker}),
            client.post("/login", json={"token": marker + "x"}),
            client.post("/api/v1/batches", content=body(batch("r", 0, [1])), headers=ingesting),
            client.get("/api/v1/runs"),
        ]
        process.terminate()
        process.wait(10)
    assert [answer.status_code for answer in statuses] == [200, 401, 400, 401, 204, 401, 200, 200]
    log = (tmp_path / "log").read_text()
    assert "/api/v1/runs" in log
    assert marker not in log
