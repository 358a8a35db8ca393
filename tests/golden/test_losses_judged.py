"""Recorded losses that went the wrong way, and what is said of them: onset, cause, severity.

The files and what is true of them: ``tests/runs/MANIFEST.md``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from monitor.detectors import load_detector
from monitor.services.judging import DetectionEngine
from tests.bench.splices import SHAPES, try_all
from tests.fixtures.traces import Told, entries, judge, read_rows

RUNS = Path(__file__).parents[1] / "runs"
MINE = (
    "loss_spike", "divergence", "slow_drift", "train_heldout_gap", "resume_jump",
    "effective_lr_decay", "logit_growth", "source_regression", "data_drift",
)  # fmt: skip


@cache
def told_of(name: str) -> tuple[Told, ...]:
    engine = DetectionEngine("run", {name: load_detector(name) for name in MINE})
    return tuple(judge(entries(read_rows(RUNS / f"{name}.csv.gz")), engine))


def one(name: str, detector: str) -> Told:
    found = [alert for alert in told_of(name) if alert.detector == detector]
    assert len(found) == 1, told_of(name)
    return found[0]


@pytest.mark.parametrize(
    "name",
    sorted(str(path.relative_to(RUNS))[:-7] for path in RUNS.glob("*/healthy_*.csv.gz"))
    + ["real/grok_modadd97_adamw_wd1_init3_s0", "zoo/grok_modadd67_wd1"],
)
def test_nobody_is_told_of_sound_runs(name: str) -> None:
    assert [alert for alert in told_of(name) if alert.severity != "info"] == []
    assert len(told_of(name)) <= 2


def test_three_batches_of_random_bytes() -> None:
    spike = one("zoo/badbatch", "loss_spike")
    assert (spike.onset, spike.severity, spike.state) == (500, "warning", "resolved")
    assert spike.opened <= 502
    assert "a batch the model could not digest" in spike.cause
    assert [a for a in told_of("zoo/badbatch") if a.detector == "divergence"] == []


def test_a_chat_template_in_three_rows_of_ten_opens_the_gap() -> None:
    gap = one("zoo/template", "train_heldout_gap")
    assert 400 < gap.onset <= gap.opened <= 550
    assert gap.state == "resolved"
    assert "became easy all at once" in gap.cause


def test_fresh_data_after_memorised_batches_is_a_spike_with_a_cause_and_no_divergence() -> None:
    spike = one("zoo/stale16", "loss_spike")
    assert 1000 <= spike.onset <= spike.opened <= 1005
    assert "fresh data came back at step 1,000" in spike.cause
    gap = one("zoo/stale16", "train_heldout_gap")
    assert 600 < gap.onset <= gap.opened <= 750
    assert "stale data" in gap.cause
    assert [a for a in told_of("zoo/stale16") if a.detector == "divergence"] == []


def test_a_real_run_that_over_fits() -> None:
    name = "more/fail_druidowm_gpt2_jnyhr7aj"
    gap = one(name, "train_heldout_gap")
    assert (gap.severity, gap.onset) == ("warning", 801)  # its best was evaluated at 800
    assert gap.opened <= 1400
    assert "over-fits" in gap.cause


def test_held_out_tasks_that_rise_are_judged_by_their_mean() -> None:
    from monitor.importers import read_log
    from monitor.services.backtest import imported_entries

    path = RUNS / "real/fail_finetune_overfit_overconfident_30ep.csv.gz"
    with path.open("rb") as stream:
        imported = read_log(stream)
    engine = DetectionEngine("run", {name: load_detector(name) for name in MINE})
    told = judge(imported_entries(imported, "run"), engine)
    assert [(t.detector, t.severity) for t in told] == [("train_heldout_gap", "warning")]


def test_real_failures_in_a_healthy_history_are_found_at_once_and_where_they_began() -> None:
    rows = read_rows(RUNS / "real/healthy_modded_124m_adam_wsd.csv.gz")
    tried = try_all(rows, SHAPES[:5])
    assert len(tried) == 25
    assert all(one.caught for one in tried)
    assert sorted(one.delay_steps or 0 for one in tried)[12] <= 5
    assert sum(one.early for one in tried) == 0
