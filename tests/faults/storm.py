"""Fifty alerts in a run, told to a receiver that misbehaves, by a server that is killed meanwhile.

Each alert has a rule and a series of its own. Even ones are over again before the end. What must
hold afterwards is counted by ``account``.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

import httpx

from tests.faults.receiver import Receiver
from trainer_hooks.wire import AttemptStart, Batch, Cell, Frame, RunStart, encode

RUN = "storm"
ALERTS = 50
MOST_FAULTS = 3
"""So often at most one message is mistreated: six failures would be the receiver's own fault."""
SETTLED = ("sent", "folded", "cancelled", "gave_up")


class FlakyReceiver(Receiver):
    """Answers 500, 429 with Retry-After, nothing in time, or breaks off after it read the body."""

    def __init__(self, seed: int, *, hang_s: float = 11.0, share: float = 0.4) -> None:
        self.chance = random.Random(seed)
        self.hang_s = hang_s
        self.share = share
        self.faults: Counter[str] = Counter()
        self._faults_of: Counter[str] = Counter()
        super().__init__()

    def misbehave(self, handler: BaseHTTPRequestHandler, headers: dict[str, str]) -> str:
        """What to do to this POST; empty: take it."""
        name = headers.get("webhook-id", "")
        if self._faults_of[name] >= MOST_FAULTS or self.chance.random() >= self.share:
            return ""
        kinds, weights = ("500", "429", "cut", "hang"), (4, 4, 4, 1)
        fault = self.chance.choices(kinds, weights)[0]
        self._faults_of[name] += 1
        self.faults[fault] += 1
        return fault


class Running(Protocol):
    """A server: its address, and a GET of its API."""

    url: str

    def get(self, path: str, **params: Any) -> Any: ...


@dataclass(slots=True)
class Account:
    """What came of all alerts. ``lost``: open to this day and told to nobody, told and its end not,
    or taken by the receiver and not known as sent; ``told_twice``: a moment under two ids."""

    alerts: int = 0
    messages: int = 0
    lost: int = 0
    told_twice: int = 0
    unsettled: int = 0


class Storm:
    """Posts the run's values, in order and as often as it takes."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._step = 0
        self._began = time.time()

    def make_rules(self) -> None:
        """One rule an alert."""
        for number in range(ALERTS):
            rule = {
                "id": f"rule-{number}", "name": f"rule {number}", "series": f"storm/{number}",
                "value": 0.5, "calm": 1, "severity": "warning",
            }  # fmt: skip
            self._persist("POST", "/rules", json.dumps(rule).encode())

    def blow(self, through: int, over: int = 0) -> None:
        """Open all alerts below ``through``; those below ``over`` with even numbers are over."""
        self._step += 1
        values: dict[str, list[Cell]] = {
            f"storm/{number}": [
                0.0 if number >= through or (number < over and not number % 2) else 1.0
            ]
            for number in range(ALERTS)
        }
        now = time.time()
        opening = [RunStart(RUN, now), AttemptStart(0, 1, now)] if self._step == 1 else []
        frame = Frame([self._step], [now], values)
        batch = Batch(RUN, "a0", "s", self._step - 1, now, self._step, [frame], [*opening])
        self._persist("POST", "/batches", encode(batch))

    def _persist(self, method: str, path: str, body: bytes, limit_s: float = 60.0) -> None:
        """Until the server has it: it is killed all the time."""
        end = time.monotonic() + limit_s
        while True:
            try:
                answer = httpx.request(
                    method,
                    f"{self._server.url}/api/v1{path}",
                    content=body,
                    timeout=10.0,
                    headers={"content-type": "application/json"},
                )
                if answer.is_success:
                    return
                if answer.status_code < 500:
                    raise AssertionError(answer.text)
            except httpx.HTTPError:
                pass
            if time.monotonic() > end:
                raise AssertionError(f"{path} could not be posted in {limit_s:.0f} s")
            time.sleep(0.05)


def account(server: Running, receiver: Receiver) -> Account:
    """Compare what the server says it told with what the receiver took.

    The storm over, the run falls silent, which is told as well and is none of its alerts.
    """
    alerts = server.get("/alerts", run=RUN, limit=1000)["alerts"]
    every = [server.get(f"/alerts/{alert['id']}") for alert in alerts]
    details = [detail for detail in every if detail["detector"] == "user_rule"]
    others = {m["id"] for one in every if one not in details for m in one["messages"]}
    taken = {message.id for message in receiver.messages()} - others
    found = Account(alerts=len(details), messages=len(taken))
    known: dict[str, str] = {}
    for detail in details:
        for message in detail["messages"]:
            known[message["id"]] = message["state"]
            found.unsettled += message["state"] not in SETTLED
    for detail in details:
        ids = Counter(message["moment"] for message in detail["messages"])
        found.told_twice += sum(count - 1 for count in ids.values())
        found.lost += not _was_told(detail, known) and detail["state"] != "resolved"
        ended = [m for m in detail["messages"] if m["moment"] == "resolved"]
        found.lost += _was_told(detail, known) and detail["state"] == "resolved" and not ended
    found.lost += sum(known.get(name) != "sent" for name in taken)
    found.lost += sum(state == "sent" and name not in taken for name, state in known.items())
    return found


def _was_told(detail: dict[str, Any], known: dict[str, str]) -> bool:
    """Whether its opening left, in a message of its own or in another's."""
    for message in detail["messages"]:
        state = message["state"]
        if message["moment"] == "opened":
            return "sent" in (state, known.get(message["folded_into"], ""))
    return False


def told_of_all(server: Running, receiver: Receiver) -> Callable[[], bool]:
    """Whether everything is settled by now."""

    def settled() -> bool:
        try:
            now = account(server, receiver)
        except httpx.HTTPError:
            return False
        return now.alerts == ALERTS and not now.unsettled

    return settled


def as_line(found: Account) -> str:
    return json.dumps(asdict(found))
