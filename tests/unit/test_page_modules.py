"""The dashboard's pure modules, tested where they run: in a JavaScript engine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parent / "js"


def test_pure_page_modules(require: Callable[..., None]) -> None:
    node = shutil.which("node")
    require(node, "no node: the page modules' own tests need it")
    files = sorted(str(file) for file in TESTS.glob("*.test.js"))
    assert files
    done = subprocess.run(
        [str(node), "--test", *files], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
