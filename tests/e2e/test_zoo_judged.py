"""A real run of the zoo, through the real hooks and the wire, is judged as its truth says."""

import pytest

pytest.importorskip("torch")

from monitor.detectors import DETECTORS  # noqa: E402
from tests.bench.parts.zoo_truth import EXPECTED  # noqa: E402
from tests.bench.zoo import Judged, figures  # noqa: E402
from tests.fixtures.traces import Told  # noqa: E402
from tests.fixtures.zoo_runs import (  # noqa: E402
    judge_batches,
    read_batches,
    train_recorded,
    write_batches,
)
from trainer_hooks.zoo.faults import FAULTS, fault_class  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def starved():
    """Batches of a run whose second source stops coming."""
    return train_recorded("starved_source", seed=2, onset=161, steps=230)


def column(batches, key):
    return {
        step: cell
        for batch in batches
        for frame in batch["frames"]
        if key in frame["columns"]
        for step, cell in zip(frame["steps"], frame["columns"][key], strict=True)
    }


def test_the_wire_carries_what_was_fed(starved):
    shares = column(starved, "source_share@upper")
    assert {shares[step] for step in range(1, 161)} == {0.25}
    assert {shares[step] for step in range(161, 231)} == {0.0}
    divergence = column(starved, "batch_unigram_kl")
    before = sum(divergence[step] for step in range(141, 161)) / 20
    after = sum(divergence[step] for step in range(181, 201)) / 20
    assert after > 1.5 * before
    assert set(column(starved, "clip_share")) == set(range(1, 231))
    assert "loss/probe@upper" in {k for b in starved for f in b["frames"] for k in f["columns"]}


def test_the_judges_say_so_soon_and_say_nothing_before(starved):
    truth = {"fault": "starved_source", "seed": 2, "steps": 230, "onset": 161, "end": 230}
    run = Judged("starved", truth, judge_batches(starved))
    assert run.caught is not None
    assert run.caught.detector in ("data_drift", "source_regression")
    assert abs(run.caught.onset - 161) <= 16
    assert run.wrong == []


def test_a_kept_run_is_judged_the_same(starved, tmp_path):
    path = tmp_path / "kept.wire.jsonl.gz"
    write_batches(path, starved)
    assert judge_batches(read_batches(path)) == judge_batches(starved)


def test_every_fault_has_somebody_who_has_to_find_it():
    spoilt = {name for name in FAULTS if not fault_class(name).is_control}
    assert spoilt == set(EXPECTED)
    assert {name for one in EXPECTED.values() for name in one.detectors} <= set(DETECTORS)


def told(detector, opened, severity="warning", onset=None):
    return Told(detector, "", severity, "", onset or opened, opened, "firing", None, "")


def test_the_figures_of_some_runs():
    truth = {"fault": "bad_batch", "seed": 0, "steps": 500, "onset": 301, "end": 303}
    sound = {"fault": "healthy", "seed": 0, "steps": 800, "onset": None, "end": None}
    runs = [
        Judged("found", truth, [told("loss_spike", 303, onset=301)]),
        Judged("too late", truth, [told("loss_spike", 330)]),
        Judged("by another", truth, [told("slow_drift", 302), told("loss_spike", 200)]),
        Judged("sound", sound, [told("slow_drift", 400, "info"), told("throughput_drop", 400)]),
    ]
    found = figures(runs)
    assert found["recall"] == pytest.approx(1 / 3)
    assert found["median_delay_steps"] == 2
    assert found["onset_right_share"] == 1
    assert found["misses"] == ["too late", "by another"]
    assert found["false_alarms"] == 1
    assert found["healthy_steps"] == 3 * 300 + 800
    assert (found["of_the_machine"], found["infos_in_sound_runs"]) == (1, 1)
