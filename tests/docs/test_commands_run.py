"""The commands the README gives are run as they stand there."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_each_make_command_of_the_readme_is_a_target() -> None:
    commands = re.findall(r"\bmake ([a-z-]+)", README)
    assert {"demo", "test", "serve"} <= set(commands)
    for command in set(commands):
        subprocess.run(
            ["make", "--dry-run", command], cwd=ROOT, check=True, capture_output=True, timeout=30
        )


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_watchkeeper_command_answers_to_help(command: str) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("watchkeeper")), command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"watchkeeper {command}" in done.stdout


@pytest.mark.parametrize(
    "name", ["README.md", "docs/quickstart.md", "docs/webhooks.md", "docs/architecture.md"]
)
def test_python_in_the_documents_parses(name: str) -> None:
    for code in blocks((ROOT / name).read_text(encoding="utf-8"), "python"):
        ast.parse(code)


def test_the_pinned_torch_of_the_readme_is_the_one_tested() -> None:
    named = re.search(r"torch==([0-9.]+)", README)
    assert named
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"torch=={named.group(1)}" in pins


def test_the_readme_lists_exactly_the_commands_there_are() -> None:
    listed = re.search(r"`watchkeeper\s+([a-z\n]+ \|[a-z |\n]+)`", README)
    assert listed
    assert [w for w in shlex.split(listed.group(1)) if w != "|"] == list(COMMANDS)
