"""A copy of the house to break things in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FURNITURE = ("monitor", "trainer_hooks", "web", "pyproject.toml", "Makefile", ".ci")


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """The program's sources, copied; the original is never touched."""
    copy = tmp_path / "house"
    copy.mkdir()
    for name in FURNITURE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    return copy


@pytest.fixture
def run_in(house: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one of the checkout's own tools inside the copy."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=house, capture_output=True, text=True, timeout=200, check=False
        )

    return run


def plant(house: Path, name: str, text: str) -> Path:
    """Write a file of the copy that breaks a rule."""
    path = house / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
