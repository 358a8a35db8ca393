"""The commands that start, check and migrate a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.cli import main

TOKENS = ("WATCHKEEPER_INGEST_TOKEN", "WATCHKEEPER_READ_TOKEN")


def test_check_shows_where_each_setting_comes_from_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATCHKEEPER_READ_TOKEN", "hunter2")
    monkeypatch.setenv("WATCHKEEPER_PORT", "9001")
    assert main(["check", "--host", "localhost"]) == 0
    said = capsys.readouterr().out
    lines = {line.split()[0]: line for line in said.splitlines() if line}
    assert "9001" in lines["port"]
    assert lines["port"].endswith("WATCHKEEPER_PORT")
    assert lines["host"].endswith("command line")
    assert lines["log_level"].endswith("default")
    assert "hunter2" not in said


def test_check_says_what_would_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--host", "0.0.0.0"]) == 1
    assert "WATCHKEEPER_OPEN_ON_PURPOSE" in capsys.readouterr().out


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_a_server_open_to_the_net_does_not_start(
    host: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["serve", "--host", host, "--port", "0", "--data-dir", str(tmp_path)]) == 2
    assert "without tokens" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_bad_value_is_named_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATCHKEEPER_PORT", "hunter2")
    assert main(["check"]) == 2
    said = capsys.readouterr().err
    assert "WATCHKEEPER_PORT" in said
    assert "hunter2" not in said


def test_migrate_makes_the_schema_and_may_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["migrate", "--data-dir", str(tmp_path)]) == 0
    assert (tmp_path / "watchkeeper.db").exists()
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert first.startswith("Schema: ")


def test_serve_on_an_old_schema_without_migrating_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path), "--no-migrate"]
    assert main(words) == 2
    assert "watchkeeper migrate" in capsys.readouterr().err


def test_an_address_that_is_none_is_said_without_repeating_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--port", "0", "--database-url", "mysql://u:hunter2@h/d"]) == 2
    said = capsys.readouterr().err
    assert "WATCHKEEPER_DATABASE_URL" in said
    assert "hunter2" not in said
