"""Delivery: a storm under kills, one outage of ten runs, a flapping value, crossing to socket.

``python -m tests.bench.delivery [--kills N] [--alerts N]``. The last line is JSON: messages the
storm's receiver took, alerts lost and told twice, messages of the outage and of the flapping, and
the 95th percentile from the call of ``step()`` that crosses, in a training loop with the hooks at
their default settings, to the receiver's socket, in seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import torch

from monitor.clock import FakeClock
from monitor.domain.rule import Rule
from monitor.services.silencing import save_rule
from monitor.storage import migrate
from monitor.storage.engine import open_database
from tests.faults import storm
from tests.faults.receiver import Receiver
from tests.faults.test_kill_nine import Server, wait_for, weather
from tests.fixtures.house import House
from trainer_hooks import watch

RUNS = 10
STEPS = 1000
STEP_S = 0.08
QUIET_STEPS = 25
EACH_STEPS = 12
"""Steps between two crossings: a second, so that no two share a batch."""


def storm_under_kills(folder: Path, kills: int, seed: int) -> storm.Account:
    """Fifty alerts, a flaky receiver, the server killed all the time."""
    folder.mkdir()
    with storm.FlakyReceiver(seed) as receiver:
        server = Server(folder, f"sqlite:///{folder / 'storm.db'}", receiver)
        try:
            weather(server, receiver, random.Random(seed), kills)
            server.start()
            told = storm.told_of_all(server, receiver)
            wait_for(told, 600.0, "all alerts to be told", every_s=0.5)
            return storm.account(server, receiver)
        finally:
            server.kill()


class TimedReceiver(Receiver):
    """Notes when each POST came to its socket."""

    def __init__(self) -> None:
        self.came: list[float] = []
        super().__init__()

    def misbehave(self, handler: BaseHTTPRequestHandler, headers: dict[str, str]) -> str:
        self.came.append(time.monotonic())
        return ""


def latencies(folder: Path, alerts: int) -> list[float]:
    """Seconds from each step that crosses to the receiver, through the hooks and a real server."""
    folder.mkdir()
    with TimedReceiver() as receiver:
        server = Server(folder, f"sqlite:///{folder / 'latency.db'}", receiver)
        try:
            server.start()
            for number in range(alerts):
                rule = {"id": f"rule-{number}", "name": f"rule {number}", "value": 0.5, "k": 1}
                made = httpx.post(
                    f"{server.url}/api/v1/rules", json={**rule, "series": f"crossing/{number}"}
                )
                made.raise_for_status()
            crossed = training_that_crosses(server.url, folder / "spool", alerts)
            wait_for(lambda: len(receiver.came) >= alerts, 30.0, "the last message")
        finally:
            server.kill()
    if len(receiver.came) != alerts:
        raise AssertionError(f"{len(receiver.came)} messages of {alerts} alerts")
    return [came - at for at, came in zip(crossed, receiver.came, strict=True)]


def training_that_crosses(url: str, spool: Path, alerts: int) -> list[float]:
    """A small training loop with the hooks as they come; the instants of the crossing steps."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    crossed: list[float] = []
    with watch(model, optimizer, name="crossing", server=url, spool_dir=str(spool)) as w:
        for step in range(QUIET_STEPS + alerts * EACH_STEPS):
            loss = model(torch.randn(16, 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            number, rest = divmod(step - QUIET_STEPS, EACH_STEPS)
            if number >= 0 and rest == 0:
                w.log({f"crossing/{number}": 1.0})
                crossed.append(time.monotonic())
            w.step(loss=loss, tokens=1024)
            time.sleep(STEP_S)
    return crossed


def house(folder: Path) -> House:
    """Detection and delivery on a clock of our own."""
    folder.mkdir()
    database = open_database(f"sqlite:///{folder / 'house.db'}")
    migrate.upgrade(database)
    return House(database, FakeClock(1_800_000_000.0))


def outage(folder: Path) -> int:
    """Messages about ten runs that fall silent within half a minute."""
    made = house(folder)
    for number in range(RUNS):
        made.say(f"run-{number}", run_silent=2)
        made.wait(3.0, every_s=3.0)
    made.wait(180.0)
    made.database.close()
    return len(made.sent)


def flapping(folder: Path) -> int:
    """Messages about a value that crosses its threshold every second step, and then calms down."""
    made = house(folder)
    rule = Rule("high", "high", "loss/train", value=10.0, clear=9.0, calm=1, calm_s=60.0)
    save_rule(made.database, rule, at=made.clock())
    for step in range(STEPS):
        made.clock.advance(1.0)
        made.say(loss__train=10.1 if step % 2 else 9.9)
    for _ in range(10):
        made.say(loss__train=8.0)
        made.wait(15.0)
    made.database.close()
    return len(made.sent)


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run all four and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--alerts", type=int, default=20, help="alerts the latency is taken of")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watchkeeper-delivery-") as made:
        folder = Path(made)
        took = sorted(latencies(folder / "latency", options.alerts))
        say(f"step to socket: median {took[len(took) // 2]:.3f} s, slowest {took[-1]:.3f} s")
        grouped, flaps = outage(folder / "outage"), flapping(folder / "flapping")
        say(f"outage of {RUNS} runs: {grouped} messages; {STEPS} flapping steps: {flaps}")
        found = storm_under_kills(folder / "storm", options.kills, options.seed)
    say(f"storm: {found.alerts} alerts under {options.kills} kills, {found.messages} messages")
    figures = {
        "messages": found.messages,
        "lost": found.lost,
        "told_twice": found.told_twice,
        "grouped_messages": grouped,
        "flap_messages": flaps,
        "p95_s": round(took[max(0, int(0.95 * len(took)) - 1)], 3),
    }
    say(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
