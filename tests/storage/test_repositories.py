"""Alerts, outbox, channels, readers, series and answers, on both databases."""

from __future__ import annotations

import dataclasses

import pytest

from monitor.domain.alert import Alert, AlertChange
from monitor.errors import TooManySeries
from monitor.storage.base import (
    Channel,
    Database,
    DeliveryTry,
    Fenced,
    OutboxRow,
    Snapshot,
)
from trainer_hooks.wire import Answer, SeriesSpec

ALERT = Alert(
    id="a1",
    run="r",
    detector="d",
    subject="s",
    episode=1,
    state="firing",
    severity="warning",
    title="t",
    attempt="x",
    onset_step=1,
    onset_at=1.0,
    opened_step=2,
    opened_at=2.0,
    last_step=2,
    evidence={"value": "nan", "n": [1, 2]},
)


def message(name: str, *, alert: str = "a1", channel: str = "c", due_at: float = 0.0) -> OutboxRow:
    return OutboxRow(name, "r", alert, channel, "opened", created_at=1.0, due_at=due_at)


def test_an_alert_is_saved_with_its_changes(database: Database) -> None:
    told = AlertChange("a1", "r", "pending", "firing", "crossed", 2.0, step=2)
    database.write(lambda w: w.alerts.save(ALERT, told))
    done = dataclasses.replace(ALERT, state="resolved", resolved_at=9.0, resolved_reason="cleared")
    with database.read() as work:
        assert work.alerts.get("a1") == ALERT
        assert work.alerts.open_counts() == {"r": {"warning": 1}}
        assert work.alerts.of_run("r", open_only=True) == [ALERT]
    database.write(
        lambda w: w.alerts.save(done, AlertChange("a1", "r", "firing", "resolved", "", 9.0))
    )
    with database.read() as work:
        assert work.alerts.find(open_only=True, run=None, limit=9) == []
        assert work.alerts.find(open_only=False, run="r", limit=9) == [done]
        assert [change.new for change in work.alerts.changes("a1")] == ["firing", "resolved"]
        assert work.alerts.get("nothing") is None


def test_a_message_is_claimed_once_and_in_order(database: Database) -> None:
    rows = [message("m1"), message("m2"), message("m3", alert="a2"), message("m4", due_at=50.0)]
    database.write(lambda w: w.outbox.enqueue(rows))
    database.write(lambda w: w.outbox.enqueue([message("m1", due_at=99.0)]))

    def claim(owner: str, now: float) -> list[str]:
        taken = database.write(
            lambda w: w.outbox.claim(owner=owner, now=now, lease_s=10.0, limit=9)
        )
        return [row.id for row in taken]

    assert claim("one", 1.0) == ["m1", "m3"], "m2 waits for m1, m4 is not due"
    assert claim("two", 1.0) == []
    assert claim("two", 12.0) == ["m1", "m3"], "the claim has lapsed"
    settle = {"state": "sent", "at": 13.0, "due_at": None}
    sent = DeliveryTry("m1", 13.0, 200, 0.1)
    assert not database.write(lambda w: w.outbox.settle("m1", owner="one", attempt=sent, **settle))
    assert database.write(lambda w: w.outbox.settle("m1", owner="two", attempt=sent, **settle))
    assert claim("two", 13.0) == ["m2"]
    with database.read() as work:
        assert work.outbox.counts() == {"sent": 1, "sending": 2, "waiting": 1}
        assert work.outbox.oldest_waiting() == 1.0
        held = {row.id: (row, tries) for row, tries in work.outbox.of_alert("a1")}
    assert (held["m1"][0].tries, held["m1"][0].settled_at, held["m1"][1]) == (2, 13.0, [sent])


def test_a_payload_is_frozen_once_and_only_untried_messages_are_cancelled(
    database: Database,
) -> None:
    database.write(lambda w: w.outbox.enqueue([message("m1"), message("m2", channel="d")]))
    database.write(lambda w: w.outbox.claim(owner="o", now=1.0, lease_s=9.0, limit=1))
    for payload in (b"first", b"second"):
        database.write(lambda w, p=payload: w.outbox.freeze("m1", p))
    failed = DeliveryTry("m1", 2.0, 500, 0.2, "oops")
    retry = {"state": "waiting", "at": 2.0, "due_at": 60.0, "attempt": failed}
    assert database.write(lambda w: w.outbox.settle("m1", owner="o", **retry))
    assert database.write(lambda w: w.outbox.cancel("a1", moment="opened", at=3.0)) == 1
    with database.read() as work:
        (first, tries), (second, _) = work.outbox.of_alert("a1")
    assert (first.payload, first.state, first.due_at, tries) == (
        b"first",
        "waiting",
        60.0,
        [failed],
    )
    assert (first.last_status, first.last_error, first.settled_at) == (500, "oops", None)
    assert (second.state, second.settled_at) == ("cancelled", 3.0)


def test_channels(database: Database) -> None:
    channel = Channel("c", "Night", "webhook", {"url": "http://x", "secret": "s"})
    database.write(lambda w: w.channels.save(channel))
    database.write(lambda w: w.channels.disable("c", "410"))
    with database.read() as work:
        assert work.channels.all() == [
            dataclasses.replace(channel, enabled=False, disabled_reason="410")
        ]


def test_readers_are_leased_and_fenced(database: Database) -> None:
    def take(owner: str, lease_s: float):
        return database.write(lambda w: w.readers.open("r", "x", owner=owner, lease_s=lease_s))

    first = take("one", 60.0)
    assert (first.pos, first.epoch) == (0, 1)
    assert take("two", 60.0) is None
    assert take("one", 0.0) == first, "the same holder keeps its epoch"
    second = take("two", 60.0)
    assert second.epoch == 2
    with pytest.raises(Fenced):
        database.write(lambda w: w.readers.move(first, 5))
    moved = database.write(lambda w: w.readers.move(second, 5))
    assert moved.pos == 5
    with pytest.raises(Fenced):
        database.write(lambda w: w.readers.move(second, 6))
    with database.read() as work:
        assert work.readers.positions("r") == {"x": 5}
        assert work.readers.load_snapshot("r", "x") is None
    for pos in (3, 4):
        database.write(
            lambda w, p=pos: w.readers.save_snapshot(Snapshot("r", "x", p, {"a": [1.5, None]}))
        )
    with database.read() as work:
        assert work.readers.load_snapshot("r", "x") == Snapshot("r", "x", 4, {"a": [1.5, None]})
        assert work.readers.snapshot_pos("r", "x") == 4


def test_series_are_numbered_once_and_completed(database: Database) -> None:
    bare = SeriesSpec(key="loss/train", name="loss/train")
    full = SeriesSpec(key="loss/train", name="loss", group="train", unit="nat", better="lower")
    for spec in (bare, full, bare):
        held = database.write(lambda w, s=spec: w.series.ensure("r", [s, s]))
    assert (held["loss/train"].number, held["loss/train"].group) == (1, "train")
    many = [SeriesSpec(key=f"s{i}", name="s") for i in range(10_000)]
    with pytest.raises(TooManySeries):
        database.write(lambda w: w.series.ensure("r", many))
    with database.read() as work:
        assert len(work.series.all("r")) == 1
        assert [s.key for s in work.series.named("r", ["loss/train", "100%"])] == ["loss/train"]


def test_runs_are_found_by_plain_text(database: Database) -> None:
    for at, name in enumerate(("100% sure", "100x sure", "a_b", "aXb", "it's; --", "back\\slash")):
        database.write(lambda w, n=name, t=at: w.runs.ensure(n, at=float(t)))

    def find(text: str) -> list[str]:
        with database.read() as work:
            return [r.id for r in work.runs.find(states=None, text=text, limit=9, before=None)]

    assert find("100%") == ["100% sure"]
    assert find("A_B") == ["a_b"]
    assert find("'s; --") == ["it's; --"]
    assert find("\\") == ["back\\slash"]
    assert len(find("")) == 6
    with database.read() as work:
        page = work.runs.find(states=["running"], text="", limit=2, before=4.0)
        assert [run.id for run in page] == ["aXb", "a_b"]
        assert work.runs.find(states=[], text="", limit=9, before=None) == []


def test_answers_of_a_sampling(database: Database) -> None:
    def answer(sampling: str, prompt: str, text: str) -> Answer:
        return Answer(sampling, prompt, "h", "p", text, 7, 3.0, token_logprobs=[-0.5, "-inf"])

    database.write(
        lambda w: w.answers.add(
            "r", "a", [answer("s1", "p1", "x"), answer("s1", "p2", "y")], at=1.0
        )
    )
    database.write(lambda w: w.answers.add("r", "a", [answer("s1", "p1", "z")], at=1.0))
    with database.read() as work:
        assert [a.text for a in work.answers.of_sampling("r", "s1")] == ["z", "y"]
        (sampling,) = work.answers.samplings("r")
    assert (sampling["id"], sampling["count"], sampling["weights_step"]) == ("s1", 2, 7)
