"""One alert's life as messages: what the recorded payloads are made of."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from monitor.domain.alert import Alert
from monitor.formats.base import Message
from monitor.services.alerting import alert_text, run_facts
from monitor.storage.base import Database
from trainer_hooks.wire import Phase, RunStart

MOMENTS = ("opened", "acknowledged", "reminder", "resolved")
BASE_URL = "https://watch.example.org"
BEGAN = 1_772_334_720.0  # 2026-03-01 03:12:00 UTC
SECRETS = {
    "url": "https://hooks.example.org/services/T000/B000/marker-of-the-secret",
    "secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    "topic": "marker-of-the-secret-topic",
    "authorization": "Bearer marker-of-the-secret-token",
    "routing_key": "marker0of0the0secret0key00000000",
    "password": "marker-of-the-secret-password",
}
CONFIG = {
    **SECRETS,
    "host": "smtp.example.org",
    "sender": "Watchkeeper <watch@example.org>",
    "to": "night@example.org, Ada <ada@example.org>",
    "user": "watch@example.org",
}

ALERT = Alert(
    id="3f0c9a1b2d4e5f60718293a4b5c6d7e8", run="7d1e", detector="stale_data", subject="",
    episode=1, state="firing", severity="warning", title="stale data", attempt="a0",
    onset_step=41_203, onset_at=BEGAN, opened_step=41_207, opened_at=BEGAN + 60.0,
    last_step=45_000,
    evidence={
        "rule": "repeat_share", "value": 0.18, "threshold": 0.05, "n": 20,
        "summary": "18 % of the rows in the last 20 batches were served before (declared: none). "
        "Train loss fell 0.21 meanwhile, the fixed probe rose 0.05.",
        "causes": [
            {"text": "the loader began its shard again after a 4.1 s stall at step 41,198"}
        ],
        "first_action": "stop the run, look at the loader's shard index",
    },
)  # fmt: skip


def tell_run(database: Database, name: str = "tiny-coder-160m") -> None:
    """The run the story is of, with the checkpoint before it went wrong."""

    def work(uow: Any) -> None:
        uow.runs.ensure("7d1e", at=BEGAN - 86_400.0)
        facts = RunStart(name, BEGAN - 86_400.0, tags=["night"], price_per_hour=2.1231)
        uow.runs.describe("7d1e", facts, at=BEGAN - 86_400.0)
        uow.runs.touch("7d1e", at=BEGAN + 7_800.0, last_step=45_000, skew_s=0.0)
        before = BEGAN - 1_440.0
        saved = Phase("p", "checkpoint", 41_000, before, 41_000, before, "ckpt/41000")
        uow.events.add_phase("7d1e", "a0", saved, pos=1)

    database.write(work)


def alert_at(moment: str) -> Alert:
    """The alert as it is when this is told."""
    if moment == "acknowledged":
        seen = {"acknowledged_at": BEGAN + 900.0, "acknowledged_by": "ada"}
        return replace(ALERT, state="acknowledged", **seen)  # type: ignore[arg-type]
    if moment == "resolved":
        over = {"resolved_at": BEGAN + 9_000.0, "resolved_step": 46_200}
        return replace(ALERT, state="resolved", resolved_reason="calm", **over)  # type: ignore[arg-type]
    return ALERT


def message_at(database: Database, moment: str) -> Message:
    """The message of a moment, in the words the server has for it."""
    alert = alert_at(moment)
    with database.read() as uow:
        return Message(
            id=f"msg_{moment}",
            moment=moment,
            at=BEGAN + 60.0,
            text=alert_text(uow, alert, moment=moment, base_url=BASE_URL),
            alert=asdict(alert),
            run=run_facts(uow.runs.get("7d1e"), alert),
        )
