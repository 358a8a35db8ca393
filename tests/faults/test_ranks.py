"""Two real ranks over gloo: replicas and data are compared, and nothing ever waits for a rank."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.stub_server import StubServer

pytest.importorskip("torch")

import torch  # noqa: E402

from trainer_hooks.loop.ranks import batch_hash, checksum, compare  # noqa: E402

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).with_name("ranks_script.py")
ROOT = SCRIPT.parents[2]


def received(tmp_path, story):
    """What the server got of a run of two ranks; both must end well."""
    with StubServer() as server:
        words = [f"file://{tmp_path}/meeting", server.url, str(tmp_path / "spool"), story]
        ranks = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), str(rank), *words],
                cwd=ROOT,
                env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in (0, 1)
        ]
        try:
            said = [rank.communicate(timeout=90)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        assert said == ["done\n", "done\n"]
        beats = server.received.records("heartbeat")
        assert beats[-1]["hook_errors"] == 0
        return server.received


def test_replicas_in_step_are_equal_to_the_bit_and_their_data_differ(tmp_path):
    got = received(tmp_path, "sound")
    spread = got.series("checksum_spread")
    assert len(spread) >= 5
    assert set(spread.values()) == {0.0}
    first, second = got.series("batch_hash@rank0"), got.series("batch_hash@rank1")
    assert len(first) == len(second) >= 5
    assert all(first[step] != second[step] for step in first)
    assert all(value > 0 for value in got.series("step_s@rank1").values())
    declared = {record["key"] for record in got.records("series")}
    assert {"checksum_spread", "checksum@rank1", "data_wait_s@rank0"} <= declared


def test_a_rank_whose_weights_part_shows_at_the_next_comparison(tmp_path):
    spread = received(tmp_path, "parted").series("checksum_spread")
    before = [value for step, value in spread.items() if step <= 22]
    after = [value for step, value in spread.items() if step > 26]
    assert before
    assert set(before) == {0.0}
    assert after
    assert min(after) > 1e-9


def test_ranks_that_are_served_the_same_batches(tmp_path):
    got = received(tmp_path, "same data")
    first, second = got.series("batch_hash@rank0"), got.series("batch_hash@rank1")
    assert first == second != {}


def test_hooks_on_one_rank_only_start_nothing(tmp_path):
    got = received(tmp_path, "one watch only")
    assert len(got.series("loss/train")) == 40
    assert got.series("checksum_spread") == {}


def test_the_sum_of_equal_weights_is_equal_and_sees_a_swap():
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0]])
    assert float(checksum([one, two])) == 3 + 2 * 7
    assert float(checksum([two, one])) == 7 + 2 * 3


def test_a_batch_is_its_rows_in_their_order():
    assert batch_hash([[5, 6]]) == 5 + 2 * 6
    assert batch_hash([[5], torch.tensor([6])]) == 5 + 2 * 6
    assert batch_hash([[6, 5]]) != batch_hash([[5, 6]])
    assert math.isnan(batch_hash([]))


def test_vectors_of_different_steps_are_not_compared():
    row = [5.0, 1.0, math.nan, 0.1, 0.0]
    assert compare([row, [10.0, *row[1:]]]) == {}
    found = compare([row, [5.0, 3.0, math.nan, 0.2, 0.0]])
    assert found["checksum_spread"] == pytest.approx(2 / 3)
    assert "batch_hash@rank0" not in found
    assert found["step_s@rank1"] == 0.2
