"""`make gpu-check` runs to its end with any Python that has torch; nothing is installed for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.guards.conftest import ROOT

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["make", "--no-print-directory", "gpu-check", f"PYTHON={sys.executable}", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        words,
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_same_script_ends_on_the_cpu_with_all_its_figures() -> None:
    done = make("ARGS=--device cpu --width small --steps 60")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {
        "card", "torch", "parameters", "steps", "step_ms_median_off", "step_ms_median_on",
        "overhead_median_pct", "step_ms_p99_off", "step_ms_p99_on", "overhead_p99_pct",
        "syncs_off", "syncs_on", "syncs_added", "waits_off", "waits_on", "copies_to_host_on",
        "peak_added_mib", "resident_added_mib", "intervals", "sync_samples", "unthrottled",
    } <= found.keys()  # fmt: skip
    for part in (found, found["unthrottled"]):
        assert part["steps"] >= 50
        assert part["hook_errors"] == 0
    assert found["full_samples"] >= 1
    assert found["unthrottled"]["full_samples"] >= 2
    assert found["unthrottled"]["probes"] >= 2
    assert found["largest_loss_difference"] == 0.0
    assert found["overhead_median_pct"] == pytest.approx(
        100 * (found["step_ms_median_on"] / found["step_ms_median_off"] - 1)
    )
    assert found["syncs_added"] is None  # nothing was looked at: absent is not zero


def test_without_a_device_it_says_so_and_measures_nothing() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    done = make()
    assert done.returncode != 0
    assert "no CUDA device" in done.stderr
    assert done.stdout == ""


def test_the_full_size_has_160_million_parameters() -> None:
    import torch

    from tests.bench.gpu_check import SIZES, Gpt

    with torch.device("meta"):
        model = Gpt(SIZES["160m"])
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(160e6, rel=0.05)


def test_it_needs_torch_the_standard_library_and_this_repository_only() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import tests.bench.gpu_check; "
        "print(*sorted({n.partition('.')[0] for n in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {"tests", "torch", "trainer_hooks"}
