"""An alert from the number that raised it to the person who closes it, over HTTP, on both."""

from __future__ import annotations

import time
from typing import Any

from tests.api.conftest import Running
from tests.api.test_stream import events
from tests.fixtures.batches import batch, opening
from trainer_hooks.wire import Phase


def until(server: Running, path: str, holds: Any, seconds: float = 15.0) -> Any:
    end = time.monotonic() + seconds
    while not holds(found := server.get(path)):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def break_run(server: Running) -> dict[str, Any]:
    """200 good steps with a checkpoint, then NaN; the alert that opens."""
    saved = Phase("p1", "checkpoint", 150, 1.0, 150, 2.0, path="/ckpt/150")
    server.send(batch("r", 0, list(range(200)), records=[*opening("r"), saved]))
    bad = {"loss/train": ["nan"] * 20}
    server.send(batch("r", 1, list(range(200, 220)), columns=bad))  # type: ignore[arg-type]
    found = until(server, "/api/v1/alerts?open=true", lambda got: got["alerts"])
    (alert,) = found["alerts"]
    return dict(alert)


def test_an_alert_opens_is_acknowledged_and_closed(server: Running) -> None:
    with server.client.stream("GET", "/api/v1/stream?run=r") as answer:
        said = events(answer)
        alert = break_run(server)
        while (heard := next(said))[0] != "alert":
            pass
    assert heard[2]["id"] == alert["id"]
    assert alert["detector"] == "non_finite"
    assert alert["severity"] == "critical"
    assert alert["onset_step"] == 200
    assert alert["run_name"] == "tiny"
    assert alert["last_checkpoint"] == {"step": 150, "at": 2.0, "path": "/ckpt/150"}
    assert alert["lost_by_going_back_steps"] == 50  # the sound ones, from 150 to 200
    assert alert["cost_so_far"] is not None
    (run,) = server.get("/api/v1/runs")["runs"]
    assert run["health"] == "act"
    assert run["open_alerts"]["critical"] == 1
    assert "since step 200" in run["sentence"]
    assert "last checkpoint before it 150" in run["sentence"]

    path = f"/api/v1/alerts/{alert['id']}"
    act = {"by": "kim", "note": "on it \0"}
    assert server.client.post(f"{path}/acknowledge", json=act).status_code == 202
    seen = until(server, path, lambda got: got["state"] == "acknowledged")
    assert (seen["acknowledged_by"], seen["acknowledged_note"]) == ("kim", "on it \u2400")
    assert "tiny" in seen["text"]
    assert server.get("/api/v1/runs")["runs"][0]["health"] == "look"

    act = {"by": "kim", "note": "", "was_fine": True}  # type: ignore[dict-item]
    assert server.client.post(f"{path}/resolve", json=act).status_code == 202
    done = until(server, path, lambda got: got["state"] == "resolved")
    assert [change["new"] for change in done["changes"]][-2:] == ["acknowledged", "resolved"]
    assert server.client.post(f"{path}/acknowledge", json={"by": "x"}).status_code == 409
    assert server.get("/api/v1/alerts?open=true&run=r")["alerts"] == []
    text = server.client.get("/metrics").text
    assert 'watchkeeper_alerts_open{detector="non_finite"' not in text
