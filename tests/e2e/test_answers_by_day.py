"""Real runs of the zoo, asked day by day by ``watchkeeper sample`` in its own process.

One seed of each; more: ``make bench NAME=answers ARGS="--only days --seeds 5"``.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from monitor.settings import Settings
from tests.api.conftest import Running, running

pytest.importorskip("torch")

from tests.fixtures.answer_days import (  # noqa: E402
    CONTROL,
    ONSET,
    OVER_TRAINING,
    SHORT_ANSWERS,
    Days,
    Story,
    lived,
)

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(1200)]
SEED = 1


@pytest.fixture
def server(tmp_path: Path) -> Generator[Running]:
    yield from running(Settings(port=0, data_dir=tmp_path / "server"))


def days_of(server: Running, story: Story, folder: Path) -> Days:
    days = lived(server.url, story, SEED, folder)
    assert [p["weights_step"] for p in days.trends["points"]] == list(story.asked)
    assert len({p["day"] for p in days.trends["points"]}) == len(story.asked)
    return days


def change(days: Days, name: str) -> float:
    first, last = (days.trends["points"][n]["numbers"][name] for n in (0, -1))
    return float(last - first)


def test_over_training_shows_and_is_told(server: Running, tmp_path: Path) -> None:
    days = days_of(server, OVER_TRAINING, tmp_path)
    assert change(days, "confidence") > 0.1
    assert change(days, "reference_nll") > 0.3
    assert days.opened_at_sampling is not None
    assert days.drift[0]["onset_step"] >= ONSET


def test_answers_that_shorten_show_and_are_told(server: Running, tmp_path: Path) -> None:
    days = days_of(server, SHORT_ANSWERS, tmp_path)
    assert change(days, "length") < -15
    assert change(days, "ends") > 0
    assert days.opened_at_sampling is not None


def test_a_healthy_run_gets_surer_and_nobody_is_told(server: Running, tmp_path: Path) -> None:
    days = days_of(server, CONTROL, tmp_path)
    assert change(days, "confidence") > 0
    assert change(days, "reference_nll") < 0
    assert days.drift == []
