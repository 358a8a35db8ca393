"""Two server processes' worth of workers on one PostgreSQL: shared work, nothing told twice."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.conftest import running, settings_for
from tests.api.test_stream import events
from tests.fixtures.batches import batch, opening

pytestmark = pytest.mark.postgres


def test_what_one_takes_in_the_other_shows_and_one_alert_opens(
    migrated_pg_url: str, tmp_path: Path
) -> None:
    settings = settings_for(migrated_pg_url, tmp_path)
    serve = contextmanager(running)
    with serve(settings) as one, serve(settings) as other:
        one.send(batch("r", 0, [0], records=opening("r")))
        with other.client.stream("GET", "/api/v1/stream?run=r") as answer:
            said = events(answer)
            one.send(batch("r", 1, list(range(1, 200))))
            while (heard := next(said))[0] != "points":
                pass
            assert heard[2]["rows"]["loss/train"][0][0] == 1
            bad = {"loss/train": ["nan"] * 20}
            other.send(batch("r", 2, list(range(200, 220)), columns=bad))  # type: ignore[arg-type]
            while (heard := next(said))[0] != "alert":
                pass
        time.sleep(1.5)  # long enough for a second judge to speak up
        for server in (one, other):
            (alert,) = server.get("/api/v1/alerts")["alerts"]
            assert alert["detector"] == "non_finite"
        detail = one.get(f"/api/v1/alerts/{alert['id']}")
        assert [change["new"] for change in detail["changes"]] == ["firing"]
