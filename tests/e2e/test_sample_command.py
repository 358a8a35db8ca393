"""``watchkeeper sample`` as a stranger runs it: a process of its own beside a real server."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from monitor.settings import Settings
from tests.api.conftest import Running, running
from tests.fixtures.batches import batch, opening
from tests.fixtures.completions import LOGPROB, CompletionsServer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RUN = "tiny-1"
LOADER = """
import math, torch
from torch import nn

class NextByte(nn.Module):
    def __init__(self, sureness):
        super().__init__()
        self.sureness = nn.Parameter(sureness)

    def forward(self, ids):
        following = torch.where(ids == ord("z"), 0, (ids + 1) % 256)
        return nn.functional.one_hot(following, 256) * self.sureness

def load(path, device):
    return NextByte(torch.load(path, weights_only=True)["model"]).to(device)
"""
PROMPTS = """
prompts:
  - {id: abc, text: "abc", reference: "def"}
  - {id: x, text: "x"}
decodings:
  - {max_tokens: 5}
"""


@pytest.fixture
def server(tmp_path: Path) -> Generator[Running]:
    yield from running(Settings(port=0, data_dir=tmp_path / "server"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "loading.py").write_text(LOADER)
    (tmp_path / "prompts.yaml").write_text(PROMPTS)
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


def sample(work: Path, server: Running, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "WATCHKEEPER_SERVER": server.url,
        "WATCHKEEPER_SPOOL_DIR": str(work / "state"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [
        str(Path(sys.executable).with_name("watchkeeper")),
        "sample",
        "--run",
        RUN,
        "--once",
        *words,
    ]
    return subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, timeout=90, check=False
    )


def save(work: Path, step: int, sureness: float, at: float) -> Path:
    path = work / "checkpoints" / f"step-{step:06d}.pt"
    torch.save({"model": torch.tensor(sureness)}, path)
    os.utime(path, (at, at))
    return path


def begin(server: Running, through: int = 400) -> None:
    steps = list(range(1, through + 1))
    assert server.send(batch(RUN, 0, steps, records=opening(RUN))).status_code == 200


BESIDE = ("--checkpoints", "checkpoints", "--load", "loading:load", "--prompts", "prompts.yaml",
          "--settle", "0.2")  # fmt: skip


def samplings(server: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get(f"/api/v1/runs/{RUN}/samplings")["samplings"]
    return found


def test_every_new_checkpoint_is_asked_once(work: Path, server: Running) -> None:
    begin(server)
    day = time.time() - 10 * 86_400
    for i, step in enumerate((100, 200)):
        save(work, step, 3.0 + i, day + i * 86_400)
    before = server.get(f"/api/v1/runs/{RUN}")
    done = sample(work, server, *BESIDE)
    assert done.returncode == 0, done.stderr
    found = samplings(server)
    assert [(one["weights_step"], one["count"]) for one in found] == [(100, 3), (200, 3)]
    assert [one["at"] for one in found] == pytest.approx([day, day + 86_400])

    pairs = server.get(f"/api/v1/runs/{RUN}/answers")["pairs"]
    abc = next(pair for pair in pairs if pair["prompt_id"] == "abc")
    assert abc["right"]["text"] == "defgh"
    p = 1 / (1 + 255 * math.exp(-4.0))
    assert abc["right"]["confidence"] == pytest.approx(p, rel=1e-5)
    assert abc["right"]["reference_nll"] == pytest.approx(-math.log(p), rel=1e-4)
    assert abc["right"]["sampler"] == "checkpoints"

    # What watches from beside changes nothing of the run: late answers rewind nothing.
    after = server.get(f"/api/v1/runs/{RUN}")
    assert (after["last_step"], after["state"]) == (400, "running")
    assert after["last_seen_at"] == before["last_seen_at"]
    assert len(after["attempts"]) == 1

    # A second process finds nothing to do; one that forgot everything stores nothing twice.
    assert sample(work, server, *BESIDE).returncode == 0
    again = sample(work, server, *BESIDE, "--state", "forgotten.json")
    assert again.returncode == 0, again.stderr
    assert samplings(server) == found

    save(work, 300, 5.0, day + 2 * 86_400)
    assert sample(work, server, *BESIDE).returncode == 0
    assert [one["weights_step"] for one in samplings(server)] == [100, 200, 300]
    phases = [p for p in server.get(f"/api/v1/runs/{RUN}/events")["phases"]]
    assert {p["name"] for p in phases} == {"sampling"}
    assert len(phases) == 3
    assert all(p["end_at"] >= p["begin_at"] and p["path"].endswith(".pt") for p in phases)
    assert {p["text"] for p in phases} == {"watchkeeper sample on cpu"}


def test_only_those_far_enough_apart_are_asked(work: Path, server: Running) -> None:
    begin(server)
    day = time.time() - 10 * 86_400
    for i in range(5):
        save(work, 100 + 50 * i, 3.0, day + i * 43_200)
    assert sample(work, server, *BESIDE, "--every", "1d").returncode == 0
    assert [one["weights_step"] for one in samplings(server)] == [100, 200, 300]


def test_a_broken_checkpoint_is_told_and_kept_for_later(work: Path, server: Running) -> None:
    begin(server)
    path = save(work, 100, 3.0, time.time() - 60)
    path.write_bytes(b"no checkpoint at all")
    done = sample(work, server, *BESIDE)
    assert done.returncode == 1
    assert "step-000100.pt" in done.stderr
    assert samplings(server) == []
    save(work, 100, 3.0, time.time() - 50)
    assert sample(work, server, *BESIDE).returncode == 0
    assert len(samplings(server)) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--checkpoints DIR, or --endpoint URL"),
        (("--checkpoints", "checkpoints"), "--load module:function, or --hf"),
        (("--checkpoints", "checkpoints", "--load", "nothing:load"), "nothing:load"),
        (("--endpoint", "http://127.0.0.1:9/v1"), "needs --model and --prompts"),
        ((*BESIDE, "--every", "soon"), "a number of steps, or a time"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    work: Path, server: Running, words: tuple[str, ...], said: str
) -> None:
    done = sample(work, server, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("echo", [True, False])
def test_a_completions_server_is_asked(work: Path, server: Running, echo: bool) -> None:
    begin(server)
    with CompletionsServer(echo=echo) as model:
        words = ("--endpoint", model.url, "--model", "tiny", "--prompts", "prompts.yaml")
        done = sample(work, server, *words, "--step", "350")
        assert done.returncode == 0, done.stderr
    (one,) = samplings(server)
    assert (one["weights_step"], one["count"]) == (350, 2)  # it refuses the empty prompt
    pairs = server.get(f"/api/v1/runs/{RUN}/answers")["pairs"]
    answers = {pair["prompt_id"]: pair["right"] for pair in pairs}
    assert answers["abc"]["text"] == "defgh"
    assert answers["abc"]["confidence"] == pytest.approx(0.8)
    assert answers["abc"]["stop_reason"] == "length"
    assert (answers["x"]["text"], answers["x"]["stop_reason"]) == ("yz", "end")
    wanted = pytest.approx(-LOGPROB) if echo else None
    assert answers["abc"]["reference_nll"] == wanted
    asked = [body for body in model.asked if not body.get("echo")]
    assert {(body["model"], body["seed"], body["temperature"]) for body in asked} == {
        ("tiny", 0, 0.0)
    }
