"""The Dockerfile's own steps, run in an empty virtual environment outside the checkout.

An editable checkout hides what a wheel lacks: templates, migrations, a dependency. This does not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def instructions(word: str) -> list[str]:
    """What follows each ``word`` of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return re.findall(rf"^{word} (.+)$", text, flags=re.MULTILINE)


def copy_as_the_dockerfile_does(target: Path) -> None:
    """Carry out the COPY lines."""
    for line in instructions("COPY"):
        *sources, place = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, target / place, ignore=ignored)
            else:
                shutil.copy2(ROOT / source, target / place)


def environment(folder: Path) -> dict[str, str]:
    """This process's, with the new virtual environment first and no way back to the checkout."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WATCHKEEPER_", "PYTHON"))}
    return {**kept, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment in which the Dockerfile's RUN lines have run."""
    folder = tmp_path_factory.mktemp("install")
    source, home = folder / "src", folder / "venv"
    source.mkdir()
    copy_as_the_dockerfile_does(source)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=60)
    steps = [line for line in instructions("RUN") if line.startswith("pip ")]
    assert steps
    for step in steps:
        done = subprocess.run(
            ["/bin/sh", "-c", step],
            cwd=source,
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    shutil.rmtree(source)
    return home


@pytest.fixture
def server(installed: Path, tmp_path: Path, free_port: int) -> Generator[str]:
    """Address of ``watchkeeper serve`` running from the installed wheel."""
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(
        [str(installed / "bin" / "watchkeeper"), "serve"],
        cwd=tmp_path,
        env={**environment(installed), "WATCHKEEPER_PORT": str(free_port)},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield f"http://127.0.0.1:{free_port}"
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def answer(url: str, *, within_s: float) -> tuple[int, str]:
    """Status and body, asking again until the server listens."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return int(response.status), response.read().decode()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@pytest.mark.timeout(400)
def test_the_wheel_holds_dashboard_migrations_and_run_books(installed: Path) -> None:
    code = (
        "import json, monitor.resources as r;"
        "print(json.dumps([str(f()) for f in (r.web_folder, r.migrations_folder, r.docs_folder)]))"
    )
    done = subprocess.run(
        [str(installed / "bin" / "python"), "-I", "-c", code],
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    web, migrations, docs = map(Path, json.loads(done.stdout))
    assert web.name == "_web"
    assert installed in web.parents
    assert list((web / "templates").rglob("*.html"))
    assert list((web / "static").rglob("*.js"))
    assert list((migrations / "versions").glob("*.py"))
    assert list((docs / "detectors").glob("*.md"))


@pytest.mark.timeout(400)
def test_the_server_starts_from_the_wheel(server: str) -> None:
    status, _ = answer(f"{server}/health/ready", within_s=30)
    assert status == 200
    status, page = answer(f"{server}/", within_s=5)
    assert status == 200
    assert "<html" in page


@pytest.mark.timeout(400)
def test_the_server_comes_without_torch(installed: Path) -> None:
    assert not list(installed.glob("lib/python*/site-packages/torch"))


def test_the_image_does_not_run_as_root() -> None:
    assert instructions("USER") == ["watchkeeper"]
    assert instructions("HEALTHCHECK")
    assert instructions("EXPOSE") == ["8765"]
