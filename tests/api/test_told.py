"""Silences, rules, incidents, history, labels, the digest and the commands, on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.cli import main
from tests.api.conftest import Running
from tests.api.test_alerts import break_run, until
from tests.fixtures.batches import batch, opening

NIGHT = {"begin": "22:00", "end": "07:00", "zone": "Europe/Amsterdam", "days": [4, 5]}


def test_silences_are_made_listed_and_ended(server: Running) -> None:
    made = server.client.post("/api/v1/silences", json=NIGHT | {"tag": "sweep", "by": "kim"})
    assert made.status_code == 201
    once = {"from": "2030-03-31T01:00", "to": "2030-03-31T04:00", "zone": "Europe/Amsterdam"}
    lasts = server.client.post("/api/v1/silences", json=once).json()
    assert lasts["ends_at"] - lasts["starts_at"] == 2 * 3600.0  # the clocks go forward that night
    listed = server.get("/api/v1/silences")["silences"]
    assert [one["tag"] for one in listed] == ["sweep", ""]
    path = f"/api/v1/silences/{made.json()['id']}"
    assert server.client.delete(path).status_code == 204
    assert server.client.delete(path).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"begin": "22:00"},
        {"begin": "22:00", "end": "24:00"},
        {**NIGHT, "zone": "Mars/Base"},
        {**NIGHT, "from": "2030-01-01T00:00", "to": "2030-01-02T00:00"},
        {"from": "2030-01-02T00:00", "to": "2030-01-01T00:00"},
        {"from": "soon", "to": "later"},
        {**NIGHT, "days": [7]},
    ],
)
def test_silences_that_cannot_be_are_refused(server: Running, wrong: dict[str, Any]) -> None:
    answer = server.client.post("/api/v1/silences", json=wrong)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_rule_judges_a_run_from_its_first_batch(server: Running) -> None:
    rule = {"name": "Loss too high", "series": "loss/train", "value": 1.0, "severity": "critical"}
    made = server.client.post("/api/v1/rules", json=rule)
    assert (made.status_code, made.json()["id"]) == (201, "loss-too-high")
    server.send(batch("r", 0, list(range(1, 4)), records=[*opening("r")]))
    (alert,) = until(server, "/api/v1/alerts?run=r", lambda got: got["alerts"])["alerts"]
    assert (alert["detector"], alert["subject"], alert["opened_step"]) == (
        "user_rule", "loss-too-high: loss/train", 1,
    )  # fmt: skip
    changed = server.client.put("/api/v1/rules/loss-too-high", json=rule | {"value": 2.0})
    assert changed.json()["value"] == 2.0
    assert server.client.delete("/api/v1/rules/loss-too-high").status_code == 204
    assert server.client.delete("/api/v1/rules/loss-too-high").status_code == 404
    until(server, f"/api/v1/alerts/{alert['id']}", lambda got: got["state"] == "resolved")


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "nan"},
        {"value": 1.0, "clear": 2.0},
        {"value": 1.0, "k": 3, "m": 2},
        {"value": 1.0, "window": 0},
    ],
)
def test_rules_that_cannot_be_are_refused(server: Running, wrong: dict[str, Any]) -> None:
    answer = server.client.post("/api/v1/rules", json={"name": "r", "series": "x"} | wrong)
    assert answer.status_code == 422


def test_incident_history_label_and_digest(server: Running) -> None:
    alert = break_run(server)
    (incident,) = server.get("/api/v1/incidents?run=r")["incidents"]
    assert (incident["id"], incident["lead"], incident["open"]) == (alert["id"], alert["id"], True)
    assert server.get(f"/api/v1/incidents/{incident['id']}") == incident
    assert server.client.get("/api/v1/incidents/none").status_code == 404
    detail = server.get(f"/api/v1/alerts/{alert['id']}")
    assert [one["id"] for one in detail["incident_alerts"]] == [alert["id"]]
    digest = server.get("/api/v1/digest")
    assert digest["headline"].endswith("1 run, 1 needs a look")
    assert any(line.startswith("Open: the loss is not a number") for line in digest["lines"])
    assert server.client.get("/api/v1/digest?zone=Mars/Base").status_code == 422
    body = {"by": "kim", "was_fine": True}
    assert server.client.post(f"/api/v1/alerts/{alert['id']}/resolve", json=body).status_code == 202
    until(server, f"/api/v1/alerts/{alert['id']}", lambda got: got["state"] == "resolved")
    (span,) = server.get("/api/v1/alerts/fine?run=r")["spans"]
    assert (span["detector"], span["first_step"], span["alert"]) == ("non_finite", 200, alert["id"])
    changes = server.get("/api/v1/alerts/history?run=r")["changes"]
    assert [(one["new"], one["reason"]) for one in changes] == [
        ("resolved", "was_fine"), ("firing", "loss_not_finite"),
    ]  # fmt: skip


def test_the_commands(
    server: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATCHKEEPER_SERVER", server.url)
    alert = break_run(server)

    def said(*words: str) -> str:
        assert main([*words, "--server", server.url]) == 0
        return capsys.readouterr().out

    assert f"{alert['id'][:12]}  critical  firing" in said("alerts", "list")
    assert "since step 200" in said("alerts", "show", alert["id"][:8])
    said("alerts", "ack", alert["id"][:8], "--by", "kim", "--note", "looking")
    until(server, f"/api/v1/alerts/{alert['id']}", lambda got: got["state"] == "acknowledged")
    shown = said("alerts", "show", alert["id"])
    assert "firing -> acknowledged: acknowledged_by_person by kim" in shown
    made = json.loads(said("alerts", "silence", "--run", "r", "--for", "8h", "--json"))
    assert made["ends_at"] - made["starts_at"] == pytest.approx(8 * 3600.0)
    daily = said("alerts", "silence", "--daily", "22:00-07:00", "--days", "fri,sat")
    assert "everything: 22:00-07:00 UTC, fri,sat" in daily
    assert made["id"] in said("alerts", "silence", "--list")
    said("alerts", "silence", "--remove", made["id"])
    assert "loss/train above 3" in said("rules", "add", "High", "loss/train", "--above", "3")
    assert "high" in said("rules", "list")
    said("rules", "remove", "high")
    assert said("rules", "list") == "There are no rules.\n"
    said("alerts", "resolve", alert["id"], "--fine")
    until(server, f"/api/v1/alerts/{alert['id']}", lambda got: got["state"] == "resolved")
    assert said("alerts", "list") == "No open alerts.\n"
    assert main(["alerts", "show", "zz", "--server", server.url]) == 2
    assert "0 alerts have an id that begins with 'zz'" in capsys.readouterr().err
    assert main(["alerts", "list", "--server", "http://127.0.0.1:9"]) == 2
    assert "does not answer" in capsys.readouterr().err
