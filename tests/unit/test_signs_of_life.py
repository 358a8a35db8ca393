"""Pings that are missed when they stop, and the one alert that needs no database."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from monitor.clock import FakeClock
from monitor.errors import DiskFull
from monitor.senders.http import Answer
from monitor.services.last_words import LEAST_FREE_BYTES, LastWords
from monitor.services.pinging import FAILURES, Ping
from monitor.services.workers import Health
from monitor.storage.base import Channel
from monitor.storage.engine import open_database
from monitor.storage.migrate import upgrade
from tests.fixtures.house import SECRET
from trainer_hooks import watch
from trainer_hooks.post import ping as hook_ping
from trainer_hooks.post.ping import make_ping

SOUND = Health("delivery", 10, 0, 0.1, "")


@dataclass
class Posts:
    """A way out that keeps what leaves; ``status`` is what the other side says."""

    status: int | None = 200
    got: list[tuple[str, bytes]] = field(default_factory=list)

    def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST"
    ) -> Answer:
        self.got.append((url, body))
        return Answer(self.status, "" if self.status else "away")


# -- the server's ping ----------------------------------------------------------------------------


def test_the_server_says_that_it_works_or_what_does_not(caplog: pytest.LogCaptureFixture) -> None:
    posts, health = Posts(), [SOUND]
    ping = Ping("https://hc.example/secret-uuid", posts, lambda: health)
    ping.run_once()
    health.append(Health("sealer", 3, FAILURES, 0.1, "boom"))
    ping.run_once()
    posts.status = None
    ping.run_once()
    assert posts.got[:2] == [
        ("https://hc.example/secret-uuid", b""),
        ("https://hc.example/secret-uuid/fail", b"not working: sealer"),
    ]
    assert "did not arrive" in caplog.text
    assert "secret-uuid" not in caplog.text


# -- the hook's ping ------------------------------------------------------------------------------


@contextmanager
def listening(pause_s: float = 0.0) -> Generator[tuple[str, list[tuple[str, str]]]]:
    got: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            got.append((self.command, self.path))
            time.sleep(pause_s)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST = answer

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ping/uuid", got
    finally:
        server.shutdown()
        server.server_close()


def until(holds: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_hook_beats_once_a_period_and_tells_of_a_failure() -> None:
    with listening() as (url, got):
        ping = make_ping(url, proxies=True)
        assert ping is not None
        for _ in range(20):
            ping.beat()
        until(lambda: got)
        ping.fail()
        until(lambda: len(got) == 2)
    assert got == [("GET", "/ping/uuid"), ("POST", "/ping/uuid/fail")]


def test_a_loop_whose_server_is_away_still_beats_and_says_that_it_failed(tmp_path: Any) -> None:
    with listening() as (url, got):

        def train() -> None:
            away = "http://127.0.0.1:9"
            with watch(name="r", server=away, spool_dir=tmp_path, ping_url=url) as w:
                w.step(loss=1.0)
                until(lambda: got)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            train()
        until(lambda: len(got) == 2)
    assert got == [("GET", "/ping/uuid"), ("POST", "/ping/uuid/fail")]


def test_an_address_that_hangs_or_is_none_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hook_ping, "TIMEOUT_S", 0.2)
    with listening(pause_s=0.5) as (url, _):
        ping = hook_ping.Ping(url, every_s=0.0)
        began = time.monotonic()
        for _ in range(100):
            ping.beat()
        assert time.monotonic() - began < 0.4
        until(lambda: "did not arrive" in caplog.text)
    assert "uuid" not in caplog.text
    assert make_ping(None, proxies=True) is None
    assert make_ping("file:///etc/passwd", proxies=True) is None


# -- a full disk ----------------------------------------------------------------------------------


def test_a_full_disk_is_told_from_memory_once_and_that_there_is_room_again(tmp_path: Any) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'd.db'}")
    upgrade(database)
    config = {"url": "https://example.org/hook", "secret": SECRET}
    database.write(lambda uow: uow.channels.save(Channel("hook", "hook", "generic", config)))
    posts, health, free = Posts(), [SOUND], [LEAST_FREE_BYTES]
    words = LastWords(
        database,
        FakeClock(1_800_000_000.0),
        {"http": posts},
        lambda: health,
        lambda: free[0],
        "box",
    )
    words.run_once()
    assert posts.got == []
    database.close()  # nothing can be read or written any more
    health[:] = [Health("ticks", 5, 2, 0.1, f"{DiskFull.__name__}: No space is left.")]
    posts.status = 500
    words.run_once()
    posts.status = 200
    for _ in range(3):
        words.run_once()
    health[:], free[0] = [SOUND], LEAST_FREE_BYTES - 1
    words.run_once()
    free[0] = LEAST_FREE_BYTES
    for _ in range(3):
        words.run_once()
    said = [json.loads(body) for _, body in posts.got]
    assert [one["type"] for one in said] == ["alert.opened", "alert.opened", "alert.resolved"]
    assert said[0] == said[1]
    assert said[0]["data"]["headline"] == (
        "Watchkeeper on box: no space left for the database - critical"
    )
