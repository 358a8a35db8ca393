"""The guard beside a real training: who starves the loader is named, and nobody else."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from monitor.settings import Settings
from tests.api.conftest import Running, running

pytest.importorskip("torch")

from tests.fixtures.starving import beside  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
STORY = ("calm", "stall", "starve", "starve")


@pytest.fixture
def server(tmp_path: Path) -> Generator[Running]:
    yield from running(Settings(port=0, data_dir=tmp_path / "server"))


def test_it_is_named_within_two_windows_and_only_when_it_starves(
    server: Running, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    calm, stall, first, second = beside(server.url, work, STORY)
    assert not calm["hurt"]
    assert "no lasting effect" in calm["verdict"]
    assert (stall["effect"], stall["hurt"]) == ("other_stall", False)
    assert "not the sampler's doing" in stall["verdict"]
    assert (calm["told"], stall["told"]) == ([], [])

    assert (first["effect"], second["effect"]) == ("starved", "starved")
    assert first["who"] == "watchkeeper sample on cpu"
    (alert,) = second["told"]
    assert alert["state"] == "firing"
    assert "watchkeeper sample on cpu" in alert["evidence"]["summary"]
    assert "for data instead of" in alert["evidence"]["summary"]
    assert alert["evidence"]["causes"][0]["text"] == "watchkeeper sample on cpu starves the loader"
