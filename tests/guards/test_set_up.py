"""The scripts that set a machine up, run on made-up machines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.guards.conftest import ROOT

TOOLS = ("sh", "id", "cat", "env")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder to be the whole PATH: the shell's own tools and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


def program(machine: Path, name: str, status: int) -> None:
    """Put a program there that only has an exit status."""
    path = machine / name
    path.write_text(f"#!/bin/sh\nexit {status}\n", encoding="utf-8")
    path.chmod(0o755)


def run(machine: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(machine / "sh"), str(ROOT / ".ci" / script)],
        cwd=machine,
        env={"PATH": str(machine), **variables},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_an_old_python_is_passed_over_for_a_newer_one(machine: Path) -> None:
    program(machine, "python3", 1)
    program(machine, "python3.12", 0)
    assert run(machine, "find-python").stdout == "python3.12\n"


def test_no_python_at_all_is_said_in_words(machine: Path) -> None:
    program(machine, "python3", 1)
    done = run(machine, "find-python")
    assert done.returncode == 1
    assert "3.11 or newer" in done.stderr


def test_a_python_whose_torch_finds_a_device_goes_before_one_that_only_has_torch(
    machine: Path,
) -> None:
    for name, sees in (("python3", "False"), ("python3.12", "True")):
        path = machine / name
        path.write_text(f"#!{machine / 'sh'}\necho {sees}\n", encoding="utf-8")
        path.chmod(0o755)
    assert run(machine, "find-torch").stdout == "python3.12\n"
    assert run(machine, "find-torch", PYTHON="python3").stdout == "python3\n"
    (machine / "python3.12").unlink()
    assert run(machine, "find-torch").stdout == "python3\n"


def test_where_no_python_has_torch_that_is_said(machine: Path) -> None:
    program(machine, "python3", 1)
    done = run(machine, "find-torch")
    assert done.returncode == 1
    assert "with torch" in done.stderr


def test_where_nothing_may_be_installed_what_is_missing_is_named(machine: Path) -> None:
    program(machine, "node", 0)
    done = run(machine, "system-packages", WATCHKEEPER_SYSTEM_PACKAGES="no")
    assert done.returncode == 0
    assert "chromium" in done.stderr
    assert "prometheus" in done.stderr
    assert "node" not in done.stderr


def test_a_machine_that_has_all_is_left_alone(machine: Path) -> None:
    for name in ("chromium", "promtool", "prometheus-alertmanager", "node", "npm"):
        program(machine, name, 0)
    done = run(machine, "system-packages")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
