"""``watchkeeper demo``: a small real training run with a fault waiting, watched end to end.

Three processes, as in real life: the server, the trainer (this one) and a webhook receiver. What
is reported at the end is read back over the API of the running server.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.cli._processes import Processes, start_receiver, start_server
from monitor.cli._readback import Account, Narrator, Server
from monitor.errors import WatchkeeperError

if TYPE_CHECKING:
    from trainer_hooks.zoo.run import Truth

SETTLE_S = 60.0
HOOK_BUDGET = 0.5
"""The demo measures far more often than a long run needs; the default budget is 1 % of the time."""


class DemoFailed(WatchkeeperError):
    title = "The demo did not hold what it promises"


def arguments(parser: argparse.ArgumentParser) -> None:
    from trainer_hooks.zoo.faults import FAULTS

    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the data order")
    parser.add_argument(
        "--fault", choices=list(FAULTS), default="stale_loader", metavar="FAULT",
        help="what goes wrong (default: stale_loader), one of: " + ", ".join(FAULTS),
    )  # fmt: skip
    parser.add_argument("--onset", type=int, help="first spoilt step; the fault has its own")
    parser.add_argument("--steps", type=int, help="steps to train; else enough for the fault")
    parser.add_argument("--port", type=int, default=0, help="the dashboard's; 0 takes a free one")
    parser.add_argument("--data-dir", type=Path, help="folder of the database; else a passing one")
    parser.add_argument("--once", action="store_true", help="end by itself, with a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Train, watch, and tell; 0 if every value arrived and every alert was told."""
    from trainer_hooks.zoo.run import enough_steps, truth

    steps = options.steps or enough_steps(options.onset, options.fault)
    try:
        told = truth(options.fault, seed=options.seed, onset=options.onset, steps=steps)
    except ValueError as error:
        raise DemoFailed(f"{error}.") from None
    with _orderly_stop(), _folder(options.data_dir) as folder, Processes() as processes:
        receiver = start_receiver(processes, folder)
        server = Server(start_server(processes, folder, options.port, receiver))
        try:
            story = _train(told, server, folder)
            story.settle(server, receiver.read)
        except KeyboardInterrupt:
            print("Stopped.", flush=True)
            return 130
        return _end(options, story, server)


def _end(options: argparse.Namespace, story: Story, server: Server) -> int:
    """Say how it went; without ``--once`` stay until told to stop."""
    for line in story.faults:
        print(f"watchkeeper demo: {line}", file=sys.stderr, flush=True)
    if not options.once:
        print(f"\nThe dashboard stays at {server.address} - Ctrl-C ends everything.", flush=True)
        with _quiet_interrupt():
            signal.pause()
    print(json.dumps(story.report(server.address)), flush=True)
    return 1 if story.faults else 0


def _train(told: Truth, server: Server, folder: Path) -> Story:
    """Train with the hooks in, telling of alerts as the server opens them."""
    from trainer_hooks import watch
    from trainer_hooks.zoo.run import run_zoo

    name = f"{told.fault.replace('_', '-')}-{told.seed}"
    run_id = f"{name}-{int(time.time()):x}"
    watches: list[Any] = []

    def make_watch(model: Any, optimizer: Any, **facts: Any) -> Any:
        made = watch(
            model,
            optimizer,
            name=f"demo {name}",
            run=run_id,
            server=server.address,
            spool_dir=folder / "spool",
            overhead_budget=HOOK_BUDGET,
            tags=("demo", told.fault),
            **facts,
        )
        watches.append(made)
        return made

    checkpoints = folder / "checkpoints" / run_id
    checkpoints.mkdir(parents=True)
    print(f"Dashboard: {server.address}/runs/{run_id}", flush=True)
    if told.onset is None:
        print(f"Training {told.steps} steps, seed {told.seed}, without a fault.", flush=True)
    else:
        print(
            f"Training {told.steps} steps, seed {told.seed}; "
            f"{told.fault} from step {told.onset} through {told.end}.",
            flush=True,
        )
    with Narrator(server, run_id):
        losses = run_zoo(
            told.fault,
            seed=told.seed,
            onset=told.onset,
            steps=told.steps,
            watch=make_watch,
            checkpoints=checkpoints,
        )
    print(f"Trained {len(losses)} steps; the last loss is {losses[-1]:.3f}.", flush=True)
    return Story(told, run_id, len(losses), watches[0].tally())


@dataclass(slots=True)
class Story:
    """What happened, and what should not have (``faults``, a sentence each)."""

    told: Truth
    run: str
    steps: int
    tally: Any
    account: Account = field(default_factory=Account)
    webhooks: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def settle(self, server: Server, receiver: Any) -> None:
        """Wait until the server has stored, judged and told everything; then compare."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.account = server.account(self.run)
            self.webhooks = receiver()
            settled = self.account.settled(self.tally.produced)
            if settled or time.monotonic() > deadline:
                break
            time.sleep(0.25)
        self.faults = list(self._wrong(settled))

    def _wrong(self, settled: bool) -> Iterator[str]:
        stored, produced = self.account.points_stored, self.tally.produced
        if stored != produced:
            yield f"{produced} values were produced and {stored} stored."
        if self.tally.dropped:
            yield f"{self.tally.dropped} values were dropped."
        if self.tally.hook_errors:
            yield f"{self.tally.hook_errors} errors were caught in the hooks."
        if not settled:
            yield f"After {SETTLE_S:.0f} s the server was still busy: {self.account.waiting_for}."
        pushed = any(alert["severity"] != "info" for alert in self.account.alerts)
        if pushed and not self.webhooks.get("delivered"):  # informations are never pushed
            yield "Alerts opened, and no webhook was delivered."
        for kind in ("forged", "changed"):
            if self.webhooks.get(kind):
                yield f"{self.webhooks[kind]} webhook messages were {kind}."

    def report(self, address: str) -> dict[str, Any]:
        """The last line of the demo."""
        return {
            "run": self.run,
            "seed": self.told.seed,
            "fault": self.told.fault,
            "onset": self.told.onset,
            "end": self.told.end,
            "steps": self.steps,
            "points_produced": self.tally.produced,
            "points_stored": self.account.points_stored,
            "points_dropped": self.tally.dropped,
            "alerts": [
                {key: alert[key] for key in ("detector", "onset_step", "opened_step", "state")}
                for alert in self.account.alerts
            ],
            "webhooks_delivered": self.webhooks.get("delivered", 0),
            "dashboard": f"{address}/runs/{self.run}",
        }


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """The folder that was asked for, which stays, or one that goes with the demo."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(
        prefix="watchkeeper-demo-", ignore_cleanup_errors=True
    ) as made:
        yield Path(made)


@contextmanager
def _orderly_stop() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does, so that no child is left behind."""

    def stop(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet_interrupt() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(flush=True)
