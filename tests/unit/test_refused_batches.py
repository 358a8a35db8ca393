"""Refused batches are kept for a person within a bound; what gives way is counted."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks import watch
from trainer_hooks.post.refused import REASON_BYTES, Removed, keep, removed

CAP = 10 * (1000 + REASON_BYTES)


def put(folder: Path, number: int, size: int = 1000) -> Removed:
    gone = keep(folder, f"s-{number:08d}", b"x" * size, f"reason {number}", cap_bytes=CAP)
    for path in folder.glob(f"s-{number:08d}*"):
        os.utime(path, (number, number))
    return gone


def bodies(folder: Path) -> list[int]:
    return sorted(int(path.name[2:10]) for path in folder.glob("*.json.gz"))


def test_the_oldest_give_way_and_are_counted(tmp_path: Path) -> None:
    gone = [put(tmp_path, number).batches for number in range(1, 26)]
    assert gone == [0] * 10 + list(range(1, 16))
    assert bodies(tmp_path) == list(range(16, 26))
    assert len(list(tmp_path.glob("*.reason.txt"))) == 10
    assert removed(tmp_path) == Removed(15, 15_000)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert total <= CAP


def test_of_a_batch_beyond_the_bound_the_reason_is_kept(tmp_path: Path) -> None:
    put(tmp_path, 1)
    gone = put(tmp_path, 2, size=CAP)
    assert gone == Removed(1, CAP)
    assert bodies(tmp_path) == [1]
    assert (tmp_path / "s-00000002.reason.txt").read_text() == "reason 2\n"


def test_a_count_that_cannot_be_read_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "removed.json").write_text("{")
    assert removed(tmp_path) == Removed()
    assert removed(tmp_path / "none") == Removed()


def test_a_run_whose_every_batch_is_refused_fills_no_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(batch: dict[str, Any]) -> Any:
        return 422, {}, b'{"detail": "never"}'

    caplog.set_level(logging.WARNING, "trainer_hooks")
    with StubServer() as server:
        server.answer = answer
        w: Any = watch(server=server.url, run="r", spool_dir=tmp_path, spool_bytes=200_000)
        for step in range(1, 41):
            w.log({f"mine/{i}": float(i * step) for i in range(100)})
            w.step(loss=1.0)
            server.wait_for(lambda r, step=step: r.posts >= step)
        w.close()
    folder = tmp_path / "r" / "refused"
    kept = list(folder.glob("*.json.gz"))
    gone = removed(folder)
    assert kept
    assert gone.batches > 0
    assert gone.batches + len(kept) == server.received.posts
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 200_000 // 8
    tally = w.tally()
    assert tally.refused == tally.produced
    assert 1 <= caplog.text.count("are gone") <= 6
