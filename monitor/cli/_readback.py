"""What the demo reads over the API of the running server."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

LISTEN_EVERY_S = 1.0
UNSETTLED = ("waiting", "sending")


@dataclass(frozen=True, slots=True)
class Account:
    """A run as the server has it; ``waiting_for`` says what is not done yet."""

    points_stored: int = 0
    ended: bool = False
    behind_entries: float = 0.0
    alerts: list[dict[str, Any]] = field(default_factory=list)
    unsettled_messages: int = 0

    def settled(self, produced: int) -> bool:
        """Whether all values are stored, judged, and told."""
        done = self.ended and not self.behind_entries and not self.unsettled_messages
        return done and self.points_stored >= produced

    @property
    def waiting_for(self) -> str:
        """For a person: what the server still has to do."""
        return (
            f"{self.points_stored} values stored, the run {'ended' if self.ended else 'open'}, "
            f"{self.behind_entries:.0f} entries to judge, "
            f"{self.unsettled_messages} messages to deliver"
        )


class Server:
    """The API of the server at ``address``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._http = httpx.Client(base_url=address, trust_env=False, timeout=20)

    def account(self, run: str) -> Account:
        """Everything the demo reports about a run.

        Read in the order in which things follow from each other: of a run that has ended, nothing
        is missed where nothing is left to judge, and then nothing left to tell.
        """
        detail = self._get(f"/api/v1/runs/{run}")
        behind = self._lag()
        unsettled = self._unsettled()
        return Account(
            points_stored=detail["accounts"]["stored"],
            ended=detail["ended_at"] is not None,
            behind_entries=behind,
            alerts=self.alerts(run),
            unsettled_messages=unsettled,
        )

    def alerts(self, run: str) -> list[dict[str, Any]]:
        """All alerts of a run, in the order they opened."""
        found = self._get("/api/v1/alerts", run=run, limit=500)["alerts"]
        return sorted(found, key=lambda alert: (alert["opened_step"], alert["detector"]))

    def _unsettled(self) -> int:
        states = self._samples("watchkeeper_outbox")
        return int(sum(count for labels, count in states if labels["state"] in UNSETTLED))

    def _lag(self) -> float:
        lags = self._samples("watchkeeper_reader_lag_entries")
        return sum(lag for labels, lag in lags if labels["reader"] == "detection")

    def _samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        text = self._http.get("/metrics").raise_for_status().text
        return [
            (sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    def _get(self, path: str, **query: str | int) -> Any:
        return self._http.get(path, params=query).raise_for_status().json()


class Narrator:
    """Prints alerts as the server opens them, from a thread of its own, while the run trains."""

    def __init__(self, server: Server, run: str) -> None:
        self._server = server
        self._run = run
        self._told: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="narrator", daemon=True)

    def __enter__(self) -> Narrator:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join(timeout=30)

    def _listen(self) -> None:
        while not self._done.wait(LISTEN_EVERY_S):
            self._tell()

    def _tell(self) -> None:
        """One look; a server that does not answer is asked again."""
        try:
            found = self._server.alerts(self._run)
        except (httpx.HTTPError, KeyError, ValueError):
            return
        for alert in found:
            if alert["id"] not in self._told:
                self._told.add(alert["id"])
                print(_line(alert), flush=True)


def _line(alert: dict[str, Any]) -> str:
    return (
        f"  step {alert['opened_step']}: {alert['severity']}: {alert['title']} "
        f"({alert['detector']}), since step {alert['onset_step']}"
    )
