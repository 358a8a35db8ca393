"""Judges of loader, updates, ranks and pace on recorded runs, read as a backtest reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.domain.alert import Alert
from monitor.domain.log import Column, ColumnFrame, LogEntry
from monitor.importers import read_log
from monitor.services.backtest import chosen_detectors, imported_entries, judge
from trainer_hooks.wire import RunStart

RUNS = Path(__file__).parents[1] / "runs"
JUDGES = (
    "data_stall", "template_leak", "dead_update", "rank_desync", "rank_twins", "straggler",
    "throughput_drop", "behind_plan", "disk_forecast", "checkpoint_age", "gpu_throttle",
)  # fmt: skip


def log_of(name: str) -> list[LogEntry]:
    with (RUNS / f"{name}.csv.gz").open("rb") as stream:
        return list(imported_entries(read_log(stream), name))


def alerts_of(log: list[LogEntry]) -> list[Alert]:
    return list(judge("run", log, chosen_detectors(JUDGES)).alerts)


@pytest.mark.parametrize(
    "name",
    [
        "zoo/healthy_cos",
        "zoo/repeat64k",
        "real/healthy_llmc_gpt2_124m",
        "real/healthy_modded_124m_adam_wsd",
        "real/grok_modadd97_adamw_wd1_init3_s0",
        "more/healthy_hf_lora_alpaca",
        "more/healthy_kuixing_lm",
    ],
)
def test_sound_loaders_updates_and_paces_are_left_alone(name: str) -> None:
    assert alerts_of(log_of(name)) == []


def test_a_loader_that_blocks_every_25_steps() -> None:
    (alert,) = alerts_of(log_of("zoo/slowloader"))
    assert (alert.detector, alert.severity) == ("data_stall", "warning")
    assert (alert.onset_step, alert.opened_step) == (300, 325)
    assert "blocks every 25 steps" in alert.evidence["causes"][0]["text"]
    assert alert.resolved_reason == "fed"
    assert 500 < (alert.resolved_step or 0) < 620  # the fault ends at 499


def test_a_layer_the_optimizer_was_never_given() -> None:
    (alert,) = alerts_of(log_of("zoo/frozen_b1"))
    assert (alert.detector, alert.opened_step) == ("dead_update", 130)
    assert alert.evidence["rule"] == "frozen_part"
    assert "never given to the optimizer" in alert.evidence["causes"][0]["text"]


def test_updates_lost_to_bfloat16() -> None:
    (alert,) = alerts_of(log_of("zoo/bf16w"))
    assert (alert.detector, alert.severity) == ("dead_update", "warning")
    assert alert.opened_step <= 150
    assert alert.evidence["rule"] == "rounded_away"


def test_a_learning_rate_of_zero() -> None:
    (alert,) = alerts_of(log_of("zoo/lr0"))
    assert (alert.detector, alert.severity) == ("dead_update", "critical")
    assert (alert.onset_step, alert.opened_step) == (500, 502)


def test_a_tensor_left_out_of_the_all_reduce() -> None:
    (alert,) = alerts_of(log_of("zoo/ddp_desync"))
    assert (alert.detector, alert.severity) == ("rank_desync", "critical")
    assert (alert.onset_step, alert.opened_step) == (291, 300)  # equal at 290
    assert alert.resolved_reason == "run_ended"  # they never come together again


# -- the pace of a real run, with its plan told and a slow-down put in ---------------------------

PACED = "real/healthy_modded_124m_adam_pace"


def planned(log: list[LogEntry], steps: int) -> Iterator[LogEntry]:
    for entry in log:
        records = tuple(
            replace(one, planned_steps=steps) if isinstance(one, RunStart) else one
            for one in entry.records
        )
        yield replace(entry, records=records)


def slowed(log: list[LogEntry], since: int, factor: float) -> Iterator[LogEntry]:
    for entry in log:
        yield replace(entry, frames=tuple(_slow(f, since, factor) for f in entry.frames))


def _slow(frame: ColumnFrame, since: int, factor: float) -> ColumnFrame:
    column = frame.columns["step_s"] if "step_s" in frame.columns else None
    if column is None:
        return frame
    values = column.values.copy()
    values[frame.steps >= since] *= factor
    columns = {key: frame.columns[key] for key in frame.columns}
    return replace(frame, columns={**columns, "step_s": Column(values, column.present)})


def test_a_sound_run_keeps_its_pace() -> None:
    assert alerts_of(list(planned(log_of(PACED), 4578))) == []


def test_a_tenth_slower_is_found_after_a_minute() -> None:
    log = list(planned(list(slowed(log_of(PACED), 2000, 1.1)), 4578))
    alerts = [alert for alert in alerts_of(log) if alert.detector == "throughput_drop"]
    assert [alert.severity for alert in alerts] == ["warning"]
    assert 1950 <= alerts[0].onset_step <= 2050
    assert 2350 < alerts[0].opened_step <= 2500  # a minute of 0.137 s steps
    assert alerts[0].evidence["causes"][0]["text"] == "unexplained"


def test_a_twentieth_slower_is_drawn_and_nobody_is_woken() -> None:
    log = list(planned(list(slowed(log_of(PACED), 2000, 1.06)), 4578))
    assert {(a.detector, a.severity) for a in alerts_of(log)} == {("throughput_drop", "info")}
