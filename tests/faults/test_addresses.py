"""Where batches go: loopback never through a proxy, other hosts as the environment says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.faults.test_client_server_away import free_port
from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch


def has_six() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
def dead_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """All variables name a proxy that nobody serves, and NO_PROXY says nothing."""
    proxy = f"http://127.0.0.1:{free_port()}"
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)


NAMES = [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("127.0.0.1", "LocalHost"),
         ("127.1.2.3", "127.1.2.3"), *([("::1", "[::1]")] if has_six() else [])]  # fmt: skip


@pytest.mark.usefixtures("dead_proxy")
@pytest.mark.parametrize(("where", "name"), NAMES)
def test_this_machine_is_reached_past_a_dead_proxy(tmp_path: Path, where: str, name: str) -> None:
    with StubServer(host=where) as server:
        url = f"http://{name}:{server.url.rpartition(':')[2]}"
        with watch(server=url, spool_dir=tmp_path) as w:
            w.step(loss=1.0)
        assert server.received.series("loss/train") == {1: 1.0}
    tally = w.tally()
    assert (tally.stored, tally.dropped) == (tally.produced, 0)


def test_other_hosts_go_through_the_proxy_unless_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    other = "http://train.invalid:80"
    with StubServer() as server:
        monkeypatch.setenv("http_proxy", server.url)
        with watch(server=other, spool_dir=tmp_path / "a") as through:
            through.step(loss=1.0)
        assert server.received.series("loss/train") == {1: 1.0}
        posts = server.received.posts
        with watch(server=other, spool_dir=tmp_path / "b", proxies=False) as direct:
            direct.step(loss=2.0)
        monkeypatch.setenv("no_proxy", "train.invalid")
        with watch(server=other, spool_dir=tmp_path / "c") as excepted:
            excepted.step(loss=3.0)
        assert server.received.posts == posts
    for w in (direct, excepted):
        tally = w.tally()
        assert tally.spooled == tally.produced > 0
