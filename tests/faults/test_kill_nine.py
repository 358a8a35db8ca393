"""The server is killed again and again during a run; nothing is lost, nothing told twice.

Kills are SIGKILL. Some come at random moments, some where it hurts: inside a seal, inside a
detection commit, and after a webhook left and before it was settled. The seed is printed; set
KILL_SEED to repeat.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from monitor.domain.log import Column, ColumnFrame, LogEntry
from monitor.services.judging import DetectionEngine
from tests.faults import steady_run, storm
from tests.faults.receiver import Receiver
from tests.fixtures.machine import take_free_port
from trainer_hooks.wire import AttemptStart, RunEnd, RunStart

RUN = "steady"
PLACES = ("seal", "detection", "socket")
KILLS_AT_EACH_PLACE = 2
DRAIN_S = 90.0
HIT_S = 30.0
START_S = 90.0
ENOUGH_TOLD = 3


class Server:
    """The server process, started again on the same port and database after each kill."""

    def __init__(self, folder: Path, database_url: str, receiver: Receiver) -> None:
        self._folder = folder
        self.port = take_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = os.environ | {
            "WATCHKEEPER_WEBHOOK_URL": receiver.url,
            "WATCHKEEPER_WEBHOOK_SECRET": receiver.secret,
            "WATCHKEEPER_WEBHOOK_ALLOW_PRIVATE": '["127.0.0.0/8"]',
            "WATCHKEEPER_DIGEST_AT": "",
            "WATCHKEEPER_DATABASE_URL": database_url,
            "WATCHKEEPER_DATA_DIR": str(folder),
        }

    def start(self, place: str = "nowhere") -> Path:
        """Start and wait until it is ready; the marker appears when it stands at the place."""
        self._starts += 1
        marker = self._folder / f"stands-{self._starts}"
        words = ["-m", "tests.faults.fragile_server", place, str(marker), "--port", str(self.port)]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words], env=self._environment, stdout=log, stderr=log
            )
        wait_for(self._is_ready, START_S, "the server to be ready")
        return marker

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/ready", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def get(self, path: str, **params: Any) -> Any:
        answer = httpx.get(f"{self.url}/api/v1{path}", params=params, timeout=10.0)
        answer.raise_for_status()
        return answer.json()


def wait_for(
    condition: Callable[[], object], limit_s: float, what: str, *, every_s: float = 0.05
) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s for {what}"
        time.sleep(every_s)


def kill_often(
    server: Server, receiver: Receiver, chance: random.Random, kills: int
) -> Counter[str]:
    """Kill the server ``kills`` times; how often at which place."""
    places = [place for place in PLACES for _ in range(KILLS_AT_EACH_PLACE)]
    places += ["random"] * (kills - len(places))
    chance.shuffle(places)
    hits: Counter[str] = Counter()
    for place in places:
        marker = server.start(place if place in ("seal", "detection") else "nowhere")
        if place == "random":
            time.sleep(chance.uniform(0.05, 2.0))
            hits[place] += 1
        elif place == "socket":
            with receiver.holding() as held:
                hits[place] += held.wait(HIT_S)
                server.kill()
        else:
            hits[place] += came_about(marker, HIT_S)
        server.kill()
    return hits


def came_about(marker: Path, limit_s: float) -> bool:
    """Whether the server came to stand at its place in time."""
    deadline = time.monotonic() + limit_s
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return marker.exists()


def expected_alerts(steps: int) -> dict[str, tuple[str, int]]:
    """Alert id -> (detector, step it opened at), judged here from the very same values."""
    engine = DetectionEngine(RUN)
    numbers = np.arange(1, steps + 1)
    columns = {
        "repeat_share": Column(np.array([steady_run.repeat_share(s) for s in numbers])),
        "loss/train": Column(np.array([steady_run.loss(s) for s in numbers])),
    }
    frame = ColumnFrame(numbers.astype(np.int64), numbers.astype(np.float64), columns)
    start = RunStart(RUN, 0.0)
    records = (start, AttemptStart(0, 1, 0.0), RunEnd("finished", 0.0, steps))
    entry = LogEntry(
        RUN, 1, "batch", 0.0, "a", "s", 0, through_step=steps, frames=(frame,), records=records
    )
    opened = [e.alert for e in engine.feed(entry) if e.change is not None]
    return {alert.id: (alert.detector, alert.opened_step) for alert in opened}


def stored_points(server: Server, key: str, steps: int) -> dict[int, Any]:
    """Every raw point of a series, read in stretches short enough to come unthinned."""
    points: dict[int, Any] = {}
    for first in range(1, steps + 1, 1000):
        last = min(first + 999, steps)
        read = server.get(f"/runs/{RUN}/points", key=key, from_step=first, to_step=last)
        for series in read["series"]:
            assert series["resolution"] == "raw"
            assert not series["ghost"]
            for step, value in zip(series["steps"], series["values"], strict=True):
                assert step not in points, f"step {step} came twice"
                points[step] = value
    return points


@pytest.fixture
def killed_url(request: pytest.FixtureRequest, database_kind: str) -> str:
    return str(request.getfixturevalue(database_kind))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_kind(request: pytest.FixtureRequest) -> str:
    return "sqlite_url" if request.param == "sqlite" else "migrated_pg_url"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as listening:
        yield listening


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_kill_nine_loses_nothing_and_tells_nothing_twice(
    kills: int,
    killed_url: str,
    receiver: Receiver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = int(os.environ.get("KILL_SEED", time.time_ns() % 1_000_000))
    with capsys.disabled():
        sys.stdout.write(f"\nKILL_SEED={seed}\n")
    chance = random.Random(seed)
    server = Server(tmp_path, killed_url, receiver)
    stop = tmp_path / "stop"
    words = [server.url, str(tmp_path / "spool"), RUN, str(stop)]
    trainer = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.steady_run", *words], stdout=subprocess.PIPE
    )
    try:
        hits = kill_often(server, receiver, chance, kills)
        server.start()
        wait_for(lambda: len(told_of(receiver)) >= ENOUGH_TOLD, DRAIN_S, "alerts to be told")
        stop.touch()
        said, _ = trainer.communicate(timeout=60)
        steps = json.loads(said.splitlines()[-1])["steps"]
        finish_sending(tmp_path / "spool", server)
        check_points(server, steps)
        check_alerts(server, receiver, expected_alerts(steps))
    finally:
        trainer.kill()
        trainer.wait()
        server.kill()
    assert all(hits[place] for place in (*PLACES, "random")), f"seed {seed}: {hits}"


def told_of(receiver: Receiver) -> set[str]:
    """The alerts whose opening arrived."""
    said = [json.loads(message.body) for message in receiver.messages()]
    return {one["data"]["alert"]["id"] for one in said if one["type"] == "alert.opened"}


def finish_sending(spool: Path, server: Server) -> None:
    """What the trainer could not send before it ended, ``watchkeeper sync`` sends."""
    words = ["-m", "monitor.cli", "sync", "--spool-dir", str(spool), "--server", server.url]
    subprocess.run([sys.executable, *words], check=True, timeout=60, capture_output=True)
    wait_for(lambda: server.get(f"/runs/{RUN}")["state"] == "finished", 30, "the run's end")


def check_points(server: Server, steps: int) -> None:
    """Every step is stored once, with its value; the client's account agrees."""
    losses = stored_points(server, "loss/train", steps)
    shares = stored_points(server, "repeat_share", steps)
    expected = {s: steady_run.loss(s) for s in range(1, steps + 1)}
    assert losses == {s: "nan" if v != v else v for s, v in expected.items()}
    assert shares == {s: steady_run.repeat_share(s) for s in range(1, steps + 1)}
    accounts = server.get(f"/runs/{RUN}")["accounts"]
    assert accounts["dropped"] == accounts["refused"] == accounts["overwritten"] == 0
    assert accounts["stored"] == accounts["produced"]


def check_alerts(server: Server, receiver: Receiver, expected: dict[str, tuple[str, int]]) -> None:
    """The alerts are those of an undisturbed judgement; each was told once, opened and resolved."""

    def alerts() -> dict[str, tuple[str, int]]:
        found = server.get("/alerts", run=RUN, limit=1000)["alerts"]
        return {a["id"]: (a["detector"], a["opened_step"]) for a in found}

    wait_for(lambda: len(alerts()) >= len(expected), DRAIN_S, "all alerts to be judged")
    assert alerts() == expected
    assert {detector for detector, _ in expected.values()} == {"non_finite", "stale_data"}
    messages = settled_messages(server, expected)
    sent = {m["id"] for m in messages if m["state"] == "sent"}
    assert {message.id for message in receiver.messages()} == sent
    check_told_once(messages, expected)
    assert receiver.forged == 0
    assert receiver.changed == 0, "a retry came with other bytes"


def settled_messages(server: Server, alerts: Iterable[str]) -> list[dict[str, Any]]:
    """All messages of these alerts, once none waits any more."""

    def read() -> list[dict[str, Any]]:
        found = [(alert, server.get(f"/alerts/{alert}")["messages"]) for alert in alerts]
        return [message | {"alert": alert} for alert, several in found for message in several]

    settled = ("sent", "folded", "cancelled", "gave_up")
    wait_for(lambda: all(m["state"] in settled for m in read()), DRAIN_S, "messages to settle")
    return read()


def check_told_once(messages: list[dict[str, Any]], alerts: Iterable[str]) -> None:
    """Each opening and each end once, in a message of its own or in another that left.

    What was over before its message left is not told at all, and nobody hears of its end.
    """
    states = {message["id"]: message["state"] for message in messages}
    told = 0
    for alert in alerts:
        mine = [m for m in messages if m["alert"] == alert]
        ids = Counter(m["moment"] for m in mine)
        assert max(ids.values()) == 1, f"{alert}: two ids for one moment: {mine}"
        fate = {m["moment"]: states.get(m["folded_into"], m["state"]) for m in mine}
        assert set(fate.values()) <= {"sent", "cancelled"}, f"{alert}: {mine}"
        assert fate["opened"] == fate.get("resolved", fate["opened"]), f"{alert}: {mine}"
        told += fate["opened"] == "sent"
    assert told >= ENOUGH_TOLD, "too few messages left for the test to mean anything"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kills", "database_kind"),
    [
        (20, "sqlite_url"),
        # The same code and minutes more: of the long suite.
        pytest.param(20, "migrated_pg_url", marks=[pytest.mark.slow, pytest.mark.postgres]),
        pytest.param(200, "sqlite_url", marks=pytest.mark.slow),
        pytest.param(200, "migrated_pg_url", marks=[pytest.mark.slow, pytest.mark.postgres]),
    ],
)
def test_a_storm_of_alerts_to_a_flaky_receiver_under_kills(
    kills: int, killed_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("KILL_SEED", time.time_ns() % 1_000_000))
    with capsys.disabled():
        sys.stdout.write(f"\nKILL_SEED={seed}\n")
    with storm.FlakyReceiver(seed) as receiver:
        server = Server(tmp_path, killed_url, receiver)
        try:
            hits = weather(server, receiver, random.Random(seed), kills)
            server.start()
            told = storm.told_of_all(server, receiver)
            wait_for(told, 600.0, "all alerts to be told", every_s=0.5)
            found = storm.account(server, receiver)
        finally:
            server.kill()
    assert (found.alerts, found.lost, found.told_twice) == (storm.ALERTS, 0, 0), f"seed {seed}"
    assert found.messages >= storm.ALERTS // 2
    assert (receiver.forged, receiver.changed) == (0, 0), f"seed {seed}"
    assert {"500", "429", "cut"} <= set(receiver.faults), receiver.faults
    assert hits["socket"], f"seed {seed}: {hits}"


def weather(server: Server, receiver: Receiver, chance: random.Random, kills: int) -> Counter[str]:
    """Open the alerts bit by bit while the server is killed, at random or inside a POST."""
    hits: Counter[str] = Counter()
    blowing = storm.Storm(server)
    server.start()
    blowing.make_rules()
    blowing.blow(0)
    reached = 0
    for kill in range(kills):
        if kill:
            server.start()
        # Over may only be what has crossed in an earlier step: few kills take big strides.
        before, reached = reached, storm.ALERTS * (kill + 1) // kills
        blowing.blow(reached, over=max(0, min(before, reached - 5)))
        if kill % 3 == 1:
            with receiver.holding() as held:
                hits["socket"] += held.wait(5.0)
                server.kill()
        else:
            time.sleep(chance.uniform(0.05, 2.0))
            hits["random"] += 1
        server.kill()
    return hits
