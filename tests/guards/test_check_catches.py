"""Each rule of ``make check`` is broken on purpose in a copy, and the tool must name the break."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.require import need
from tests.guards.conftest import ROOT, plant

BIN = Path(sys.executable).parent
Run = Callable[..., subprocess.CompletedProcess[str]]

# Contract (by the start of its name) -> the file that breaks it, and the import it holds.
IMPORTS = {
    "The floors of the house": ("monitor/domain/planted_floor.py", "monitor.services"),
    "The hooks know nothing": ("trainer_hooks/planted_hook.py", "fastapi"),
    "The pure rooms": ("monitor/detectors/planted_clock.py", "time"),
    "Only storage speaks SQL": ("monitor/services/planted_sql.py", "sqlalchemy"),
    "Settings are read by": ("monitor/storage/planted_settings.py", "monitor.settings"),
    "Of the client, the server": ("monitor/api/planted_client.py", "trainer_hooks.signals"),
}

RULES = {
    "E501": "X = '" + "x" * 100 + "'\n",
    "F401": "import os\n",
    "I001": "import sys\nimport os\n\nprint(os, sys)\n",
    "UP006": "from typing import List\n\nX: List[int] = []\n",
    "B006": "def f(a: list[int] = []) -> None: ...\n",
    "C901": "def f(a: int) -> int:\n"
    + "".join(f"    if a == {n}:\n        return {n}\n" for n in range(11))
    + "    return 0\n",
    "DTZ005": "from datetime import datetime\n\nX = datetime.now()\n",
    "T201": "print('x')\n",
    "PT006": "import pytest\n\n\n@pytest.mark.parametrize('a, b', [])\n"
    "def test_x(a: int, b: int) -> None: ...\n",
    "S101": "assert 1\n",
    "TID252": "from . import base\n",
}


def section(report: str, contract: str) -> str:
    """What import-linter writes about one contract that is broken."""
    parts = re.split(r"^(?=[^\n]+\n-+$)", report, flags=re.MULTILINE)
    return next((part for part in parts if part.startswith(contract)), "")


def test_every_import_contract_catches_its_violation(house: Path, run_in: Run) -> None:
    for name, imported in IMPORTS.values():
        plant(house, name, f"import {imported}\n")
    done = run_in(str(BIN / "lint-imports"), "--no-cache")
    assert done.returncode == 1, done.stdout + done.stderr
    for contract, (name, imported) in IMPORTS.items():
        module = name.removesuffix(".py").replace("/", ".")
        assert f"{module} -> {imported}" in section(done.stdout, contract), done.stdout


def test_no_import_contract_is_left_unplanted() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    names = [contract["name"] for contract in contracts]
    assert len(names) == len(IMPORTS)
    assert all(any(name.startswith(start) for start in IMPORTS) for name in names)


def test_ruff_catches_each_rule_family(house: Path, run_in: Run) -> None:
    for code, text in RULES.items():
        plant(house, f"monitor/domain/planted_{code.lower()}.py", text)
    done = run_in(str(BIN / "ruff"), "check", "--no-cache", "--output-format=concise", ".")
    assert done.returncode == 1
    missed = [c for c in RULES if not re.search(rf"planted_{c.lower()}\.py\S* {c} ", done.stdout)]
    assert not missed, done.stdout


def test_no_rule_family_is_left_unplanted() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        selected = tomllib.load(file)["tool"]["ruff"]["lint"]["select"]
    assert not [family for family in selected if not any(c.startswith(family) for c in RULES)]


def test_ruff_format_catches_a_crooked_line(house: Path, run_in: Run) -> None:
    plant(house, "monitor/domain/planted.py", "X=[1,2 ]\n")
    done = run_in(str(BIN / "ruff"), "format", "--check", "--no-cache", ".")
    assert done.returncode == 1
    assert "planted.py" in done.stdout


@pytest.mark.parametrize("package", ["monitor/domain", "trainer_hooks/signals"])
def test_mypy_catches_missing_and_wrong_types(house: Path, run_in: Run, package: str) -> None:
    text = "def bare(x):\n    return x\n\n\ndef wrong() -> int:\n    return 'a'\n"
    plant(house, f"{package}/planted.py", text)
    done = run_in(str(BIN / "mypy"), "--no-incremental", f"{package}/planted.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "planted.py:1: error: Function is missing a type annotation" in done.stdout
    assert "planted.py:6: error: Incompatible return value type" in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "caught"),
    [
        ("monitor/domain/planted.py", "X = 1\n" * 600, False),
        ("monitor/domain/planted.py", "X = 1\n" * 601, True),
        ("web/static/js/planted.js", "//\n" * 601, True),
        ("web/static/css/planted.css", "/**/\n" * 601, True),
        ("tests/unit/test_planted.py", "def f() -> None:\n" + "    g()\n" * 79, False),
        ("tests/unit/test_planted.py", "def f() -> None:\n" + "    g()\n" * 80, True),
        ("monitor/planted.py", "class A:\n    async def f():\n" + "        g()\n" * 80, True),
    ],
)
def test_size_guard(house: Path, run_in: Run, name: str, text: str, caught: bool) -> None:
    plant(house, name, text)
    done = run_in(sys.executable, ".ci/size_guard.py", str(house))
    assert (Path(name).name in done.stdout) is caught, done.stdout
    assert done.returncode == 1 or not caught


def test_tsc_catches_a_wrong_type_in_a_page_module(house: Path, run_in: Run) -> None:
    compiler = ROOT / "node_modules" / "typescript" / "bin" / "tsc"
    need(shutil.which("node"), "no Node on PATH")
    need(compiler.exists(), "no TypeScript: `make check` installs it with npm")
    plant(
        house,
        "web/static/js/planted.js",
        "// @ts-check\n/** @param {number} n */\nexport const f = (n) => n.toFixed(1);\nf('a');\n",
    )
    done = run_in("node", str(compiler), "-p", "web/jsconfig.json", "--noEmit")
    assert done.returncode != 0
    assert re.search(r"planted\.js\(4,3\): error TS2345", done.stdout), done.stdout


@pytest.mark.parametrize(
    "command",
    ["ruff format --check", "ruff check", "/mypy", "lint-imports", "size_guard.py", "--noEmit"],
)
def test_make_check_runs_the_tool(command: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "check"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert command in done.stdout
