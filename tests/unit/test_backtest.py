"""Backtests over files: parameters, counts, and the lines the command prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.cli import main
from monitor.errors import UnknownFilter
from monitor.importers import read_log
from monitor.services.backtest import chosen_detectors, imported_entries, judge

RUNS = Path(__file__).parents[1] / "runs"
STALE = RUNS / "zoo" / "stale16.csv.gz"


def test_a_changed_parameter_changes_the_verdict() -> None:
    with STALE.open("rb") as stream:
        entries = list(imported_entries(read_log(stream), "r"))
    usual = judge("r", entries, chosen_detectors(["stale_data"]))
    deaf = judge("r", entries, chosen_detectors(["stale_data"], {"repeat_share": "2"}))
    assert [alert.severity for alert in usual.alerts] == ["critical"]
    assert [alert.severity for alert in deaf.alerts] == ["info"]


@pytest.mark.parametrize(
    ("names", "params"),
    [
        (["nothing"], {}),
        (["stale_data"], {"no_such": "1"}),
        (["stale_data"], {"batches_bad": "many"}),
        (["stale_data"], {"batches_bad": "1.5"}),
    ],
)
def test_a_wrong_name_or_value_is_an_error(names: list[str], params: dict[str, str]) -> None:
    with pytest.raises(UnknownFilter):
        chosen_detectors(names, params)


def test_json_prints_a_line_an_alert_and_one_for_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["backtest", str(STALE), "--json"]) == 0
    *alerts, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert last == {"run": "stale16", "steps": 1363, "alerts": len(alerts)}
    stale = next(alert for alert in alerts if alert["detector"] == "stale_data")
    assert list(stale) == [
        "run", "steps", "detector", "severity", "subject", "onset_step", "opened_step",
        "resolved_step", "cause", "was_fine",
    ]  # fmt: skip
    assert (stale["onset_step"], stale["severity"]) == (616, "critical")
    assert 616 <= stale["opened_step"] <= 636
    assert "stall of 0.4 s at step 600" in stale["cause"]


def test_an_alert_that_lasts_to_the_end_is_not_resolved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["backtest", str(RUNS / "zoo" / "nan.csv.gz"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["detector"], first["opened_step"], first["resolved_step"]) == (
        "non_finite", 200, None,
    )  # fmt: skip


def test_the_table_says_delay_and_rate(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(STALE), str(RUNS / "zoo" / "healthy_cos.csv.gz")]
    assert main(["backtest", *files, "--detector", "stale_data"]) == 0
    out = capsys.readouterr().out
    assert "stale_data: 1 alert; if this run was sound, 7.34 false alarms per 10,000 steps" in out
    assert "critical: since step 616, opened 4 steps later" in out
    assert "healthy_cos: 1,186 steps\n  no alerts" in out
    assert "2 runs, 2,549 steps: 1 alert, 1 of them warnings or worse (3.92 per" in out


@pytest.mark.parametrize(
    "name", ["healthy_hf_lora_alpaca", "healthy_kuixing_lm", "healthy_openpi_vla"]
)
def test_sound_runs_of_other_sources_are_left_alone(name: str) -> None:
    with (RUNS / "more" / f"{name}.csv.gz").open("rb") as stream:
        found = judge("r", imported_entries(read_log(stream), "r"))
    assert [alert for alert in found.alerts if alert.severity != "info"] == []


def test_a_file_that_is_no_log_ends_with_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"\x00\x01")
    assert main(["backtest", str(bad)]) == 2
    assert str(bad) in capsys.readouterr().err


def test_import_and_backtest_of_the_stored_run_from_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = ["--data-dir", str(tmp_path)]
    assert main(["import", str(STALE), "--run", "night of stale", *data]) == 0
    told = capsys.readouterr()
    run = told.out.split()[1].rstrip(":")
    assert "alerts, nobody told" in told.out
    assert ": stale data, since step" in told.out
    assert "dup -> repeat_share" in told.err
    assert main(["backtest", run, "--json", *data]) == 0
    stored = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["backtest", str(STALE), "--json"]) == 0
    of_file = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [{**line, "run": ""} for line in stored] == [{**line, "run": ""} for line in of_file]


def test_a_map_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "mine.csv"
    log.write_text(
        "step,foo=bar\n" + "".join(f"{s},{'nan' if s > 150 else 2}\n" for s in range(200))
    )
    assert main(["backtest", str(log), "--map", "foo=bar=loss/train", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["detector"], line["onset_step"]) for line in lines[:-1]] == [("non_finite", 151)]
