"""The server is slow, dead, away or wrong: training goes on, and every value is accounted for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch
from trainer_hooks.post.account import Tally
from trainer_hooks.spool import find_leftovers

STEPS = 200


def tally_of(w: Any) -> Tally:
    tally: Tally = w._link.client.tally()
    assert tally.adds_up(), tally
    return tally


def train(w: Any, steps: int = STEPS, *, pause_s: float = 0.002) -> list[float]:
    """A loop whose losses are known; returns how long each hook call took (s)."""
    took = []
    for step in range(1, steps + 1):
        began = time.perf_counter()
        w.step(loss=1.0 / step, tokens=10)
        took.append(time.perf_counter() - began)
        time.sleep(pause_s)
    return took


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def black_hole() -> Iterator[str]:
    """Accepts connections and never says a word."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(16)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def assert_all_steps_once(server: StubServer) -> None:
    assert server.received.series("loss/train") == {s: 1.0 / s for s in range(1, STEPS + 1)}


def test_everything_arrives_once_and_the_account_is_final(tmp_path: Path) -> None:
    with StubServer() as server:
        with watch(server=server.url, name="t", spool_dir=tmp_path) as w:
            train(w)
        assert_all_steps_once(server)
        tally = tally_of(w)
        assert tally.produced == tally.stored > 0
        assert (tally.dropped, tally.hook_errors, tally.spooled) == (0, 0, 0)
        last = server.received.records("heartbeat")[-1]
        assert (last["produced"], last["stored"]) == (tally.produced, tally.stored)
        (end,) = server.received.records("run_end")
        assert (end["status"], end["last_step"]) == ("finished", STEPS)
        assert max(b["through_step"] or 0 for b in server.received.batches.values()) == STEPS
        assert {h["Content-Encoding"] for h in server.received.headers} == {"gzip"}
    assert find_leftovers(tmp_path) == []


def test_a_batch_leaves_within_250_ms(tmp_path: Path) -> None:
    with StubServer() as server:
        w = watch(server=server.url, spool_dir=tmp_path)
        w.step(loss=1.0)
        server.wait_for(lambda r: r.batches)
        time.sleep(0.3)
        late = []
        for step in range(2, 8):
            w.step(loss=1.0)
            began = time.monotonic()
            server.wait_for(lambda r, step=step: step in r.series("loss/train"), timeout_s=2)
            late.append(time.monotonic() - began)
        w.close()
    assert sorted(late)[len(late) // 2] < 0.25


def test_a_non_finite_value_does_not_wait_for_the_next_flush(tmp_path: Path) -> None:
    with StubServer() as server:
        w = watch(server=server.url, spool_dir=tmp_path)
        w.step(loss=1.0)
        server.wait_for(lambda r: r.batches)
        w.step(loss=float("nan"))
        server.wait_for(lambda r: 2 in r.series("loss/train"), timeout_s=2)
        assert server.received.series("loss/train")[2] == "nan"
        w.close()


def test_server_that_appears_late_gets_every_step_once(tmp_path: Path) -> None:
    port = free_port()
    with watch(server=f"http://127.0.0.1:{port}", spool_dir=tmp_path) as w:
        train(w, 120)
        with StubServer(port) as server:
            for step in range(121, STEPS + 1):
                w.step(loss=1.0 / step, tokens=10)
            w.close()
            assert_all_steps_once(server)
    assert tally_of(w).dropped == 0
    assert find_leftovers(tmp_path) == []


def test_up_down_up(tmp_path: Path) -> None:
    port = free_port()
    w = watch(server=f"http://127.0.0.1:{port}", spool_dir=tmp_path)
    with StubServer(port) as first:
        for step in range(1, 101):
            w.step(loss=1.0 / step)
        first.wait_for(lambda r: 50 in r.series("loss/train"))
    time.sleep(0.5)
    with StubServer(port) as second:
        for step in range(101, STEPS + 1):
            w.step(loss=1.0 / step)
        w.close()
        got = first.received.series("loss/train") | second.received.series("loss/train")
    assert sorted(got) == list(range(1, STEPS + 1))
    assert tally_of(w).dropped == 0


def test_server_that_never_comes_leaves_all_for_the_next_process(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with watch(server=url, run="r1", spool_dir=tmp_path) as w:
        train(w)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    tally = tally_of(w)
    assert tally.spooled == tally.produced > 0
    assert len(find_leftovers(tmp_path)) == 1
    with StubServer(port) as server:
        with watch(server=url, run="r2", spool_dir=tmp_path) as other:
            other.step(loss=0.5)
            server.wait_for(lambda r: any(k[2] == STEPS for k in r.values()))
        mine = {k: b for k, b in server.received.batches.items() if k[0] == "r1"}
        steps = [s for b in mine.values() for f in b["frames"] if "loss/train" in f["columns"]
                 for s in f["steps"]]  # fmt: skip
        assert steps == list(range(1, STEPS + 1))
        beats = [r for b in mine.values() for r in b["records"] if r["kind"] == "heartbeat"]
        last = max(beats, key=lambda r: r["stored"])
        assert (last["stored"], last["spooled"], last["dropped"]) == (tally.produced, 0, 0)
    assert find_leftovers(tmp_path) == []


def test_sync_sends_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from monitor.cli import main

    url = f"http://127.0.0.1:{free_port()}"
    with watch(server=url, run="r1", spool_dir=tmp_path) as w:
        train(w, pause_s=0)
    assert main(["sync", "--spool-dir", str(tmp_path), "--server", url, "--timeout", "0.1"]) == 1
    with StubServer() as server:
        args = ["sync", "--spool-dir", str(tmp_path), "--server", server.url]
        assert main(args) == 0
        assert_all_steps_once(server)
        assert main(args) == 0
    assert "1 of 1" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["closed", "hole", "no-such-host"])
def test_hooks_never_wait_and_closing_is_bounded(where: str, tmp_path: Path) -> None:
    with black_hole() as hole:
        url = {
            "closed": f"http://127.0.0.1:{free_port()}",
            "hole": hole,
            "no-such-host": "http://no-such-host.invalid:1234",
        }[where]
        w = watch(server=url, spool_dir=tmp_path)
        took = train(w, 300, pause_s=0.001)
        began = time.monotonic()
        w.close()
        assert time.monotonic() - began < 5
    assert sorted(took)[len(took) // 2] < 0.001
    tally = tally_of(w)
    assert (tally.spooled, tally.dropped) == (tally.produced, 0)


def test_what_waits_is_on_disk_while_the_server_hangs(tmp_path: Path) -> None:
    with black_hole() as url:
        w = watch(server=url, run="r", spool_dir=tmp_path)
        train(w, 50)
        time.sleep(0.6)
        tally = tally_of(w)
        assert tally.queued == 0
        assert tally.spooled == tally.produced
        w.close(timeout_s=0.5)


@pytest.mark.parametrize("status", [401, 403, 404, 409, 429, 500, 503, 507])
def test_later_means_later(status: int, tmp_path: Path) -> None:
    left = [3]

    def answer(_batch: dict[str, Any]) -> Any:
        left[0] -= 1
        return (status, {"Retry-After": "0"}, b"{}") if left[0] >= 0 else (200, {}, b"")

    with StubServer() as server:
        server.answer = answer
        with watch(server=server.url, spool_dir=tmp_path) as w:
            train(w, pause_s=0)
        assert_all_steps_once(server)
    tally = tally_of(w)
    assert tally.stored == tally.produced


def test_retry_after_is_honoured(tmp_path: Path) -> None:
    times: list[float] = []

    def answer(_batch: dict[str, Any]) -> Any:
        times.append(time.monotonic())
        return (503, {"Retry-After": "1"}, b"{}") if len(times) == 1 else (200, {}, b"")

    with StubServer() as server:
        server.answer = answer
        w = watch(server=server.url, spool_dir=tmp_path)
        w.step(loss=1.0)
        server.wait_for(lambda r: r.batches)
        w.close()
    assert times[1] - times[0] >= 1.0


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_batch_is_set_aside_and_the_rest_goes_on(status: int, tmp_path: Path) -> None:
    def answer(batch: dict[str, Any]) -> Any:
        bad = any(1 in frame["steps"] for frame in batch["frames"])
        return (status, {}, b'{"detail": "a bad one"}') if bad else (200, {}, b"")

    with StubServer() as server:
        server.answer = answer
        with watch(server=server.url, run="r", spool_dir=tmp_path) as w:
            w.step(loss=1.0)
            refused = tmp_path / "r" / "refused"
            server.wait_for(lambda _: list(refused.glob("*.reason.txt")))
            w.step(loss=2.0)
        assert list(server.received.series("loss/train")) == [2]
    tally = tally_of(w)
    assert tally.refused > 0
    assert tally.stored + tally.refused == tally.produced
    (reason,) = refused.glob("*.reason.txt")
    assert "a bad one" in reason.read_text()


def test_a_cut_connection_is_posted_again_and_counts_once(tmp_path: Path) -> None:
    cut = [2]

    def answer(batch: dict[str, Any]) -> Any:
        cut[0] -= bool(batch["frames"])
        return None if batch["frames"] and cut[0] >= 0 else (200, {}, b"")

    with StubServer() as server:
        server.answer = answer
        with watch(server=server.url, spool_dir=tmp_path) as w:
            train(w, pause_s=0)
        assert_all_steps_once(server)
        assert server.received.repeats >= 1
    tally = tally_of(w)
    assert tally.duplicate > 0
    assert tally.stored + tally.duplicate == tally.produced


def test_a_deleted_run_is_left_alone(tmp_path: Path) -> None:
    with StubServer() as server:
        server.answer = lambda _batch: (410, {}, b"{}")
        w = watch(server=server.url, spool_dir=tmp_path)
        train(w, 100)
        server.wait_for(lambda r: r.posts)
        time.sleep(0.5)
        train(w, 20)
        w.close()
        assert server.received.posts == 1
    tally = tally_of(w)
    assert tally.dropped == tally.produced
    assert find_leftovers(tmp_path) == []


def test_no_disk_for_the_spool(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with StubServer() as server:
        with watch(server=server.url, spool_dir=blocked / "spool") as w:
            train(w)
        assert_all_steps_once(server)
    assert tally_of(w).stored == tally_of(w).produced


def test_proxies_are_for_others_than_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with StubServer() as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
        with watch(server=server.url, spool_dir=tmp_path) as w:
            w.step(loss=1.0)
        assert server.received.series("loss/train") == {1: 1.0}
        monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://me:secret@"))
        with watch(server="http://train.invalid:80", spool_dir=tmp_path) as w:
            w.step(loss=2.0)
        tally = tally_of(w)
        assert tally.stored == tally.produced
        assert "Proxy-Authorization" in server.received.headers[-1]
        assert server.received.headers[-1]["Host"] == "train.invalid:80"


def test_many_threads_may_log(tmp_path: Path) -> None:
    with StubServer() as server:
        w = watch(server=server.url, spool_dir=tmp_path)

        def log(worker: int) -> None:
            for step in range(1, 101):
                w.log({f"worker/{worker}": float(step)}, step=step)

        threads = [threading.Thread(target=log, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        w.close()
        for worker in range(4):
            assert len(server.received.series(f"worker/{worker}")) == 100
    assert tally_of(w).stored == tally_of(w).produced
