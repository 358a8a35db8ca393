"""Which checkpoints are whole, in which order, and which of them are due."""

import os

import pytest

from trainer_hooks.answers.beside.checkpoints import Checkpoint, Folder, step_of
from trainer_hooks.answers.beside.jobs import Every, Memory, parse_every, sampling_name


class Monotonic:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Monotonic()


@pytest.fixture
def folder(tmp_path, clock):
    return Folder(tmp_path, settle_s=10.0, monotonic=clock)


def names(found):
    return [one.path.name for one in found]


def test_a_checkpoint_that_still_grows_is_waited_for(folder, tmp_path, clock):
    path = tmp_path / "step-000100.pt"
    path.write_bytes(b"half")
    assert names(folder.ready()) == []
    clock.now = 9.0
    path.write_bytes(b"half and half")
    assert names(folder.ready()) == []
    clock.now = 18.0
    assert names(folder.ready()) == []
    assert folder.waits == [path]
    clock.now = 19.0
    assert names(folder.ready()) == ["step-000100.pt"]
    assert folder.waits == []


def test_a_marker_says_that_it_is_whole(folder, tmp_path):
    (tmp_path / "step-1.pt").write_bytes(b"x")
    (tmp_path / "step-1.pt.done").touch()
    inside = tmp_path / "checkpoint-2"
    inside.mkdir()
    (inside / "model.safetensors").write_bytes(b"x")
    (inside / "COMPLETE").touch()
    assert names(folder.ready()) == ["step-1.pt", "checkpoint-2"]


@pytest.mark.parametrize(
    "name",
    [
        ".step-1.pt", "step-1.pt.tmp", "step-1.pt.part", "tmp-checkpoint-1",
        "step_1.orbax-checkpoint-tmp-7", "step-1.txt", "final.pt", "~step-1.pt",
    ],
)  # fmt: skip
def test_names_in_the_making_are_passed_over(folder, tmp_path, clock, name):
    (tmp_path / name).write_bytes(b"x")
    folder.ready()
    clock.now = 60.0
    assert folder.ready() == []


def test_a_folder_changes_while_anything_in_it_does(folder, tmp_path, clock):
    inside = tmp_path / "checkpoint-5"
    inside.mkdir()
    folder.ready()
    clock.now = 20.0
    assert folder.ready() == []  # nothing is in it yet
    (inside / "a.bin").write_bytes(b"x")
    (inside / "b.bin.tmp").write_bytes(b"x")
    folder.ready()
    clock.now = 40.0
    assert folder.ready() == []
    (inside / "b.bin.tmp").rename(inside / "b.bin")
    folder.ready()
    clock.now = 50.0
    assert names(folder.ready()) == ["checkpoint-5"]


def test_they_come_by_step_with_the_time_of_their_weights(folder, tmp_path, clock):
    for step in (1000, 200):
        path = tmp_path / f"step-{step}.pt"
        path.write_bytes(b"x")
        os.utime(path, (5e8 + step, 5e8 + step))
    folder.ready()
    clock.now = 10.0
    assert [(c.step, c.modified_at) for c in folder.ready()] == [
        (200, 5e8 + 200),
        (1000, 5e8 + 1000),
    ]


def test_a_folder_that_is_not_there_yet_is_empty(tmp_path):
    assert Folder(tmp_path / "later").ready() == []


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-000100.pt", 100), ("checkpoint-500", 500), ("epoch=1-step=300.ckpt", 300),
        ("iter_0007000", 7000), ("global_step12_zero3", 12), ("model.7.pt", 7), ("final.pt", None),
    ],
)  # fmt: skip
def test_the_step_is_read_from_the_name(name, step):
    assert step_of(name) == step


def test_every():
    day = parse_every("1d")
    assert day == Every(seconds=86_400.0)
    assert parse_every("500") == Every(steps=500)
    assert parse_every(None) == Every()
    for wrong in ("x", "-1", "1y", "nan"):
        with pytest.raises(ValueError, match="number of steps"):
            parse_every(wrong)
    at = 1e9
    one = Checkpoint(None, 200, at + 86_400)
    assert day.is_due(one, (100, at))
    assert not day.is_due(one, (100, at + 1))
    assert Every(steps=100).is_due(one, (100, at))
    assert not Every(steps=101).is_due(one, (100, at))
    assert Every(steps=101).is_due(one, (300, at))  # the run went back and came here again
    assert not Every(steps=101).is_due(one, (300, at + 90_000))  # an old one, passed over before


def test_what_is_done_is_remembered_and_a_broken_file_is_not(tmp_path):
    path = tmp_path / "state" / "sampled.json"
    one = Checkpoint(tmp_path / "step-1.pt", 1, 5.0)
    Memory.read(path).note("set", one, "id", "sampled")
    again = Memory.read(path)
    assert again.done == {"id": "sampled"}
    assert again.last == {"set": (1, 5.0)}
    path.write_text("{")
    assert Memory.read(path).done == {}


def test_a_sampling_is_named_by_run_set_and_checkpoint(tmp_path):
    one = Checkpoint(tmp_path / "step-1.pt", 1, 5.0)
    moved = Checkpoint(tmp_path / "elsewhere" / "step-1.pt", 1, 5.0)
    assert sampling_name("run", "set", one) == sampling_name("run", "set", moved)
    others = {
        sampling_name("run", "set", one), sampling_name("run2", "set", one),
        sampling_name("run", "set2", one),
        sampling_name("run", "set", Checkpoint(one.path, 1, 6.0)),
    }  # fmt: skip
    assert len(others) == 4
