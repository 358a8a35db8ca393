"""What an import really loads, seen in an interpreter of its own.

The import graph does not see what a package's ``__init__`` pulls in; ``sys.modules`` does.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "fastapi", "starlette", "sqlalchemy", "pydantic", "httpx", "alembic")


def modules_after(code: str) -> set[str]:
    """Top-level modules that ``code`` brings in, beyond those a bare interpreter has."""
    script = (
        "import sys; before = set(sys.modules)\n"
        f"{code}\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "sys.stderr.write('MODULES ' + ' '.join(sorted(new)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.partition("MODULES ")[2].split())


def test_importing_the_hooks_loads_the_standard_library_only() -> None:
    loaded = modules_after("import trainer_hooks; import trainer_hooks.wire; dir(trainer_hooks)")
    foreign = loaded - set(sys.stdlib_module_names) - {"trainer_hooks"}
    assert not foreign


def test_a_name_that_is_not_there_is_refused_without_loading_anything() -> None:
    loaded = modules_after(
        "import trainer_hooks\ntry:\n    trainer_hooks.nothing\nexcept AttributeError:\n    pass"
    )
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize("words", [["version"], ["--help"]])
def test_the_command_line_loads_no_floor_it_does_not_need(words: list[str]) -> None:
    loaded = modules_after(
        f"from monitor.cli import main\ntry:\n    main({words!r})\nexcept SystemExit:\n    pass"
    )
    assert not loaded & {"torch", "fastapi", "sqlalchemy", "alembic", "httpx"}


def test_the_server_never_loads_torch() -> None:
    loaded = modules_after("import monitor.app")
    assert "fastapi" in loaded
    assert not loaded & {"torch", "playwright", "pytest"}


def test_the_command_line_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", "version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("watchkeeper ")
