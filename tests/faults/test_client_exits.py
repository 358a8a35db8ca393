"""How a training process ends, and what forks of it do: always in time, always said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_client_server_away import black_hole
from tests.fixtures.stub_server import StubServer
from trainer_hooks.post.sending import adopt
from trainer_hooks.spool import find_leftovers

START = """
import os, signal, sys, time
from trainer_hooks import watch
# As in a terminal: what a shell starts in the background ignores Ctrl-C, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
w = watch(server=sys.argv[1], run="r", spool_dir=sys.argv[2])
for step in range(1, 51):
    w.step(loss=1.0 / step, tokens=10)
print("ready", flush=True)
"""


def script(tmp_path: Path, url: str, code: str) -> subprocess.Popen[str]:
    """A training process that prints ``ready`` after 50 steps and then runs ``code``."""
    path = tmp_path / "train.py"
    path.write_text(START + textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, str(path), url, str(tmp_path / "spool")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )


def ended(process: subprocess.Popen[str], since: float) -> tuple[int, str]:
    """Exit status and output; fails if it took more than 5 s (and a second for the machine)."""
    try:
        out, err = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()  # its pipes are closed, or they fail a later test
        raise
    assert time.monotonic() - since < 6, err
    return process.returncode, out + err


def last_words(server: StubServer) -> dict[str, Any]:
    (end,) = server.received.records("run_end")
    return end


@pytest.mark.parametrize(
    ("code", "status", "error", "exit_code"),
    [
        ("", "finished", None, 0),
        ("raise ValueError('hush-hush')", "failed", "ValueError", 1),
        ("with w: raise KeyError('x')", "failed", "KeyError", 1),
        ("with w: raise KeyboardInterrupt", "interrupted", None, -signal.SIGINT),
        ("raise KeyboardInterrupt", "interrupted", None, -signal.SIGINT),
        ("with w: sys.exit(3)", "finished", None, 3),
        ("with w: pass", "finished", None, 0),
    ],
)
def test_how_it_ended(
    code: str, status: str, error: str | None, exit_code: int, tmp_path: Path
) -> None:
    with StubServer() as server:
        process = script(tmp_path, server.url, code)
        returned, _ = ended(process, time.monotonic())
        assert returned == exit_code
        end = last_words(server)
        assert (end["status"], end["error"], end["last_step"]) == (status, error, 50)
        assert "hush-hush" not in str(server.received.batches)
        assert len(server.received.series("loss/train")) == 50


def test_sigterm_ends_the_process_as_it_would_have(tmp_path: Path) -> None:
    with StubServer() as server:
        process = script(tmp_path, server.url, "time.sleep(30)")
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        returned, _ = ended(process, time.monotonic())
        assert returned == -signal.SIGTERM
        assert last_words(server)["status"] == "terminated"


def test_an_earlier_handler_still_runs_and_may_go_on(tmp_path: Path) -> None:
    code = """
    import os, signal, sys, time
    from trainer_hooks import watch
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    with watch(server=sys.argv[1], run="r", spool_dir=sys.argv[2]) as w:
        w.step(loss=1.0)
        print("ready", flush=True)
        while not stop:
            time.sleep(0.01)
        w.step(loss=0.5)
    print("saved")
    """
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(code))
    with StubServer() as server:
        process = subprocess.Popen(
            [sys.executable, str(path), server.url, str(tmp_path / "spool")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd()},
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        returned, out = ended(process, time.monotonic())
        assert returned == 0
        assert "saved" in out
        assert last_words(server)["status"] == "terminated"
        assert server.received.series("loss/train") == {1: 1.0, 2: 0.5}


def test_sigterm_ends_every_watch_of_a_process(tmp_path: Path) -> None:
    code = """
    v = watch(server=sys.argv[1], run="other", spool_dir=sys.argv[2])
    v.step(loss=1.0)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
    """
    with StubServer() as server:
        returned, _ = ended(script(tmp_path, server.url, code), time.monotonic())
        assert returned == -signal.SIGTERM
        ends = {
            (key[0], record["status"])
            for key, batch in server.received.batches.items()
            for record in batch["records"]
            if record["kind"] == "run_end"
        }
        assert ends == {("r", "terminated"), ("other", "terminated")}


def test_ctrl_c_is_an_interruption(tmp_path: Path) -> None:
    with StubServer() as server:
        process = script(tmp_path, server.url, "while True: time.sleep(0.01)")
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        returned, said = ended(process, time.monotonic())
        assert returned == -signal.SIGINT
        assert "KeyboardInterrupt" in said
        end = last_words(server)
        assert (end["status"], end["error"], end["last_step"]) == ("interrupted", None, 50)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("", 0), ("w.close()", 0), ("raise ValueError", 1), ("os.kill(os.getpid(), 15)", -15)],
)
def test_a_server_that_never_answers_holds_nobody(
    code: str, exit_code: int, tmp_path: Path
) -> None:
    with black_hole() as url:
        process = script(tmp_path, url, code)
        returned, _ = ended(process, time.monotonic())
        assert returned == exit_code
        (left,) = adopt(tmp_path / "spool", server=None)
        tally = left.outbox.account.read()
        left.release()
        assert tally.adds_up()
        assert tally.spooled == tally.produced
        assert tally.produced >= 150


def test_a_child_of_multiprocessing_ends_too(tmp_path: Path) -> None:
    code = """
    import multiprocessing as mp, sys, time
    def train():
        from trainer_hooks import watch
        w = watch(server=sys.argv[1], run="r", spool_dir=sys.argv[2])
        w.step(loss=1.0)
    if __name__ == "__main__":
        child = mp.get_context("fork").Process(target=train)
        began = time.monotonic()
        child.start()
        child.join(10)
        print(child.exitcode, time.monotonic() - began < 5.5)
    """
    path = tmp_path / "parent.py"
    path.write_text(textwrap.dedent(code))
    with black_hole() as url:
        args = [sys.executable, str(path), url, str(tmp_path / "spool")]
        env = os.environ | {"PYTHONPATH": os.getcwd()}
        done = subprocess.run(args, capture_output=True, text=True, timeout=30, env=env)
        assert done.stdout.split() == ["0", "True"], done.stderr
        (left,) = adopt(tmp_path / "spool", server=None)
        left.release()
        assert left.outbox.account.read().spooled > 0


def test_sigkill_loses_one_flush_interval_at_most(tmp_path: Path) -> None:
    code = """
    for step in range(51, 100_000):
        w.step(loss=1.0 / step)
        print(step, time.monotonic(), flush=True)
        time.sleep(0.002)
    """
    with black_hole() as url:
        process = script(tmp_path, url, code)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(500)]
        process.kill()
        rest = process.stdout.read().splitlines()
        process.wait(10)
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()
    last_step, killed_at = (*lines, *rest)[-1].split()
    with StubServer() as server:
        for leftover in adopt(tmp_path / "spool", server=None):
            from trainer_hooks.transport import Transport

            transport = Transport(server.url)
            while not leftover.closed:
                leftover.post_next(transport)
            transport.close()
        steps = sorted(server.received.series("loss/train"))
        beat = server.received.records("heartbeat")[-1]
    assert steps == list(range(1, len(steps) + 1))
    by_step = dict(line.split() for line in (*lines, *rest) if line.strip() != "ready")
    assert float(killed_at) - float(by_step[str(steps[-1])]) < 1.0
    assert int(last_step) >= steps[-1]
    boxes = ("stored", "duplicate", "refused", "queued", "spooled", "dropped")
    assert beat["produced"] == sum(beat[box] for box in boxes)
    assert beat["spooled"] == beat["queued"] == 0


def test_the_next_process_takes_a_killed_ones_spool(tmp_path: Path) -> None:
    with black_hole() as url:
        process = script(tmp_path, url, "time.sleep(30)")
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.6)
        process.kill()
        process.communicate(timeout=10)
    assert len(find_leftovers(tmp_path / "spool")) == 1


@pytest.mark.torch
def test_forked_loader_workers_end_in_time_and_send_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from trainer_hooks import watch

    class Data(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __init__(self, w: Any) -> None:
            self.w = w

        def __len__(self) -> int:
            return 200

        def __getitem__(self, index: int) -> Any:
            self.w.log({"from_a_worker": 1.0}, step=index)
            self.w.event("from_a_worker")
            return torch.tensor([index])

    with StubServer() as server:
        w: Any = watch(server=server.url, spool_dir=tmp_path)
        w.step(loss=1.0)
        account = w._link.client.account
        loader = torch.utils.data.DataLoader(
            Data(w), batch_size=2, num_workers=2, multiprocessing_context="fork"
        )
        began = time.monotonic()
        with account.lock:  # as when the fork comes while a thread holds it
            batches = [b.tolist() for b in loader]
        assert time.monotonic() - began < 5
        assert len(batches) == 100
        w.close()
        assert server.received.series("from_a_worker") == {}
        assert server.received.records("event") == []
        assert len({b["source"] for b in server.received.batches.values()}) == 1
