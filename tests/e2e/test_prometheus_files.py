"""The shipped Prometheus files, judged by promtool, and by the metrics the server really has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.require import need

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "rules.yml"),
        ("test", "rules", "rules_test.yml"),
    ],
    ids=lambda words: " ".join(words),
)
def test_promtool_accepts(words: tuple[str, ...]) -> None:
    need(shutil.which("promtool"), "no promtool: it comes with the system's prometheus package")
    done = subprocess.run(
        ["promtool", *words], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_rule_has_a_test() -> None:
    rules = re.findall(r"alert: (\w+)", (FOLDER / "rules.yml").read_text(encoding="utf-8"))
    tested = (FOLDER / "rules_test.yml").read_text(encoding="utf-8")
    assert rules
    assert not [name for name in rules if f"alertname: {name}" not in tested]


def test_the_rules_name_only_metrics_the_server_has() -> None:
    source = (ROOT / "monitor/services/scrape.py").read_text(encoding="utf-8")
    exported = set(re.findall(r'"(watchkeeper_\w+)"', source))
    rules = (FOLDER / "rules.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\b(watchkeeper_\w+)", rules)) <= exported
