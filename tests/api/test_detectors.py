"""Parameters of detectors over the API: what there is, what a change would do, the change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Running
from tests.api.test_alerts import until
from tests.fixtures.batches import batch, opening

PATH = "/api/v1/detectors/stale_data"
OTHER = {"params": {"repeat_share": "0.2"}}


def train(server: Running, run: str) -> None:
    steps = range(1, 161)
    columns = {"repeat_share": [0.08] * 160, "loss/train": [2.0] * 160}
    records = opening(run, first_step=1)
    assert server.send(batch(run, 0, steps, columns=columns, records=records)).is_success


def severity(server: Running, run: str) -> str:
    path = f"/api/v1/alerts?run={run}"
    return str(until(server, path, lambda got: got["alerts"])["alerts"][0]["severity"])


def test_tried_switched_on_and_listed(server: Running) -> None:
    train(server, "a")
    assert severity(server, "a") == "critical"
    tried = server.client.post(f"{PATH}/backtest", json=OTHER)
    assert tried.status_code == 200, tried.text
    (one,) = tried.json()["runs"]
    assert (one["run"], one["name"], one["steps"], one["broken"]) == ("a", "tiny", 160, "")
    assert [alert["severity"] for alert in one["before"]] == ["critical"]
    assert [alert["severity"] for alert in one["after"]] == ["info"]
    assert one["before"][0]["opened_step"] == 129
    assert tried.json()["left"] == []

    switched = server.client.put(f"{PATH}/params", json=OTHER | {"by": "kim"})
    assert switched.status_code == 200, switched.text
    train(server, "b")
    assert severity(server, "b") == "info"
    listed = {one["name"]: one for one in server.get("/api/v1/detectors")["detectors"]}
    held = {one["name"]: one for one in listed["stale_data"]["params"]}["repeat_share"]
    assert held == {"name": "repeat_share", "shipped": "0.05", "value": "0.2"}
    assert listed["stale_data"]["by"] == "kim"
    assert "licence headers" in listed["stale_data"]["about"]
    assert (listed["run_silent"]["hears"], listed["stale_data"]["hears"]) == (True, False)
    assert "user_rule" not in listed
    assert len(listed) >= 28


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", f"{PATH}/backtest", {"params": {"no_such": "1"}}, 422),
        ("POST", f"{PATH}/backtest", {"params": {"repeat_share": "much"}}, 422),
        ("POST", f"{PATH}/backtest", {"params": {}, "runs": ["nowhere"]}, 404),
        ("POST", f"{PATH}/backtest", {}, 422),
        ("POST", "/api/v1/detectors/nothing/backtest", OTHER, 404),
        ("PUT", f"{PATH}/params", {"params": {"repeat_share": "-1"}}, 422),
        ("PUT", f"{PATH}/params", {"params": {"repeat_share": 0.2}}, 422),
        ("PUT", "/api/v1/detectors/nothing/params", OTHER, 404),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    site: Running, method: str, path: str, body: dict[str, Any], status: int
) -> None:
    answer = site.client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
