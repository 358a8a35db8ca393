"""Rows that wait for a device come complete, in order, and one due step late."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_hooks.loop.pending import Reader, Waiting

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def row(step: int, **tensors: Any) -> Waiting:
    return Waiting(step, float(step), "a", {"given": float(step)}, tensors)


def waiting_reader(rows: list[Waiting]) -> tuple[Reader, list[Waiting]]:
    """A reader whose rows lie on a device that is not ready: what ``add`` keeps on a GPU."""
    emitted: list[Waiting] = []
    reader = Reader(emitted.append)
    reader._rows = rows
    return reader, emitted


def test_on_the_cpu_a_row_is_complete_at_once() -> None:
    emitted: list[Waiting] = []
    reader = Reader(emitted.append)
    reader.add(row(1, loss=torch.tensor(2.5), ranks=torch.tensor(7)))
    assert emitted[0].cells == {"given": 1.0, "loss": 2.5, "ranks": 7}
    assert not reader.is_waiting


def test_one_packed_copy_brings_every_type_exactly() -> None:
    rows = [
        row(1, a=torch.tensor(1 / 3), b=torch.tensor(1 / 3, dtype=torch.float64)),
        row(2, a=torch.tensor(float("nan")), c=torch.tensor(1.5, dtype=torch.bfloat16)),
    ]
    rows[0].hashes = [torch.tensor([-1, 2**62 + 1]), [5]]
    rows[1].hashes = [torch.tensor([7])]
    reader, emitted = waiting_reader(rows)
    reader.turn()
    assert emitted == []  # read on the next due step, not on this one
    reader.turn()
    assert [r.step for r in emitted] == [1, 2]
    assert emitted[0].cells["a"] == torch.tensor(1 / 3).item()
    assert emitted[0].cells["b"] == 1 / 3
    assert emitted[1].cells["a"] != emitted[1].cells["a"]
    assert emitted[1].cells["c"] == 1.5
    assert emitted[0].hashes == [[-1, 2**62 + 1], [5]]
    assert emitted[1].hashes == [[7]]


def test_a_row_on_the_host_does_not_overtake_one_that_waits() -> None:
    reader, emitted = waiting_reader([row(1, a=torch.tensor(1.0))])
    reader.add(row(2, a=torch.tensor(2.0)))
    assert emitted == []
    reader.drain()
    assert [r.step for r in emitted] == [1, 2]
    assert not reader.is_waiting
