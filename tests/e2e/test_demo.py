"""The demo as a stranger runs it: every value stored, the fault told in time, nothing before it."""

import json
import subprocess
import sys
import time

import httpx
import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

REPORT = {
    "run", "seed", "fault", "onset", "end", "steps", "points_produced", "points_stored",
    "points_dropped", "alerts", "webhooks_delivered", "dashboard",
}  # fmt: skip


def command(*words):
    return [sys.executable, "-m", "monitor.cli", "demo", *map(str, words)]


def demo(*words):
    """Exit status, the report, and what stderr says."""
    done = subprocess.run(
        command("--once", *words), capture_output=True, text=True, timeout=560, check=False
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "null"
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return json.loads(last), done.stderr


def check_delivery(report):
    assert set(report) == REPORT
    assert report["points_produced"] == report["points_stored"] > 0
    assert report["points_dropped"] == 0
    if report["alerts"]:
        # What one cause did is one push: its opening and its end, however many alerts agree.
        # Never more than an opening and an end each, whatever was folded.
        assert 2 <= report["webhooks_delivered"] <= 2 * len(report["alerts"])


def opened(report, detector):
    return [a["opened_step"] for a in report["alerts"] if a["detector"] == detector]


def check_stale_story(report):
    check_delivery(report)
    onset, end = report["onset"], report["end"]
    assert min(alert["opened_step"] for alert in report["alerts"]) >= onset
    assert onset <= opened(report, "stale_data")[0] <= onset + 50
    assert onset < opened(report, "overconfidence")[0] < end


def test_the_demo_tells_of_the_stale_loader_in_time(tmp_path):
    report, said = demo("--data-dir", tmp_path)
    assert (report["seed"], report["fault"], report["steps"]) == (0, "stale_loader", 800)
    check_stale_story(report)
    assert "errors" not in said


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "onset"), [(1, 200), (2, 420), (3, 250)])
def test_other_seeds_and_onsets_tell_the_same_story(seed, onset):
    report, _ = demo("--seed", seed, "--onset", onset)
    assert (report["seed"], report["onset"]) == (seed, onset)
    check_stale_story(report)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_healthy_control_ends_without_an_alert(seed):
    report, _ = demo("--fault", "healthy", "--seed", seed)
    check_delivery(report)
    assert report["alerts"] == []


def test_an_impossible_story_is_refused_in_one_line():
    done = subprocess.run(
        command("--onset", 90, "--steps", 80), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        "watchkeeper: onset 90 lies outside the run's steps 1 to 80."
    ]


def test_without_once_the_server_stays_until_it_is_told_to_stop(tmp_path):
    running = subprocess.Popen(
        command("--steps", 3, "--fault", "healthy", "--data-dir", tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = []
    try:
        for line in running.stdout:
            lines.append(line)
            if "stays at" in line:
                break
        address = lines[0].split()[1].split("/runs/")[0]
        time.sleep(0.5)
        assert httpx.get(f"{address}/api/v1/runs").json()["runs"][0]["last_step"] == 3
        running.terminate()
        rest, _ = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    assert json.loads(rest.strip().splitlines()[-1])["steps"] == 3
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/api/v1/runs")
