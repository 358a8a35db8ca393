"""The detectors on recorded runs: who fires, from when, and who stays quiet.

The files and what is true of them: ``tests/runs/MANIFEST.md``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.traces import Told, entries, judge, read_rows

RUNS = Path(__file__).parents[1] / "runs"
INFO = "info"


def told_of(name: str) -> list[Told]:
    return judge(entries(read_rows(RUNS / f"{name}.csv.gz")))


def one(told: list[Told], detector: str) -> Told:
    found = [alert for alert in told if alert.detector == detector]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    "name",
    [
        "zoo/healthy_cos",
        "real/healthy_llmc_gpt2_124m",
        "real/healthy_modded_124m_adam_wsd",
        "real/grok_modadd97_adamw_wd1_init3_s0",
    ],
)
def test_sound_runs_are_left_alone(name: str) -> None:
    assert told_of(name) == []


def test_a_loader_that_repeats_sixteen_batches() -> None:
    told = told_of("zoo/stale16")
    assert {"stale_data", "overconfidence"} <= {alert.detector for alert in told}
    stale = one(told, "stale_data")
    assert (stale.onset, stale.severity) == (616, "critical")
    assert 616 <= stale.opened <= 650
    sure = one(told, "overconfidence")
    assert 600 < sure.onset <= sure.opened <= 750
    assert sure.severity == "critical"  # the held-out loss rose as well
    assert {stale.state, sure.state} == {"resolved"}  # fresh data came back


def test_too_little_data_for_too_many_tokens() -> None:
    sure = one(told_of("zoo/repeat64k"), "overconfidence")
    assert sure.opened <= 400
    assert sure.state == "firing"


def test_a_learning_rate_cut_off_is_named_as_the_cause_of_the_plateau() -> None:
    from monitor.services.judging import DetectionEngine

    engine = DetectionEngine("run")
    texts = [
        effect.alert.evidence["causes"][0]["text"]
        for entry in entries(read_rows(RUNS / "zoo/lr0.csv.gz"))
        for effect in engine.feed(entry)
        if effect.alert.detector == "loss_plateau"
    ]
    plateau = one(told_of("zoo/lr0"), "loss_plateau")
    assert plateau.onset == 500
    assert plateau.opened <= 850
    assert texts[0] == "the learning rate is 0 since step 500"


def test_nan_opens_at_its_own_step() -> None:
    told = one(told_of("zoo/nan"), "non_finite")
    assert (told.onset, told.opened, told.severity) == (200, 200, "critical")


def test_grokking_is_told_as_progress_of_top_10_and_never_pushed() -> None:
    told = told_of("zoo/grok_modadd67_wd1")
    assert one(told, "loss_plateau").severity == INFO
    assert {alert.severity for alert in told} == {INFO}


def test_norms_that_run_away_while_the_model_groks() -> None:
    told = told_of("real/grok_modadd97_adamw_wd0_s2_norm_x20")
    loud = [alert for alert in told if alert.detector == "norm_blowup"]
    assert {alert.severity for alert in loud} == {"critical"}
    assert min(alert.opened for alert in loud) <= 8_000  # of about 19,000 steps
    assert [alert for alert in told if alert.detector == "loss_plateau"] == []
