"""Detection on a real store: judged once, told once, whoever dies in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from monitor.clock import FakeClock
from monitor.domain.alert import Alert
from monitor.domain.log import LogEntry
from monitor.services.alerting import acknowledge, resolve
from monitor.services.detection import READER, Detection, doubts
from monitor.storage.base import Channel, Database, OutboxRow
from tests.fixtures.traces import Row, entries
from trainer_hooks.wire import Phase, RunEnd

CHANNEL = Channel("hook", "hook", "generic", {"url": "https://example.org", "secret": "whsec_AAAA"})
CLEAN, STALE = 0.0, 1.0


def rows(shares: Sequence[float], first: int = 1) -> list[Row]:
    """Steps with the given shares of repeated rows."""
    return [
        Row(first + i, 1000.0 + first + i, {"repeat_share": share, "loss/train": 2.0})
        for i, share in enumerate(shares)
    ]


def store(database: Database, log: Sequence[LogEntry]) -> None:
    def work(uow: object) -> None:
        for entry in log:
            uow.runs.ensure("run", at=entry.at)  # type: ignore[attr-defined]
            uow.log.append_batch(entry, values=1, refused=0)  # type: ignore[attr-defined]

    database.write(lambda uow: uow.channels.save(CHANNEL))
    database.write(work)


def alerts(database: Database) -> list[Alert]:
    with database.read() as uow:
        return sorted(uow.alerts.of_run("run"), key=lambda alert: alert.episode)


def outbox(database: Database, alert: str) -> list[OutboxRow]:
    with database.read() as uow:
        return [row for row, _ in uow.outbox.of_alert(alert)]


def drain(detection: Detection) -> None:
    while detection.run_all():
        pass


def detection(database: Database, owner: str = "one", **options: float) -> Detection:
    clock = options.pop("clock", None) or FakeClock(5000.0)
    return Detection(database, clock, owner, **options)  # type: ignore[arg-type]


FAULT = rows([CLEAN] * 200 + [STALE] * 60)


def test_an_alert_its_change_its_message_and_the_cursor_are_one_commit(database: Database) -> None:
    store(database, entries(FAULT))
    told: list[bool] = []
    drain(Detection(database, FakeClock(5000.0), "one", told=lambda: told.append(True)))
    (alert,) = alerts(database)
    assert (alert.detector, alert.state, alert.onset_step) == ("stale_data", "firing", 201)
    assert alert.opened_step == 205
    assert alert.last_step == 260
    assert [row.moment for row in outbox(database, alert.id)] == ["opened"]
    with database.read() as uow:
        assert [change.new for change in uow.alerts.changes(alert.id)] == ["firing"]
        notes = [e.note for e in uow.log.read("run", after=0, limit=100) if e.kind == "alert"]
        assert uow.readers.positions("run")[READER] == uow.log.head("run")
    assert [(note["alert"], note["new"]) for note in notes] == [(alert.id, "firing")]
    assert told == [True]


def test_the_next_process_repeats_nothing_and_loses_nothing(database: Database) -> None:
    log = entries(FAULT, cuts=range(0, 260, 10))
    clock = FakeClock(5000.0)
    for index, entry in enumerate(log):
        store(database, [entry])
        clock.advance(20.0)  # the lease of the dead one lapses; snapshots every other time
        judge = Detection(database, clock, f"process-{index}", lease_s=0.0)
        drain(judge)
    (alert,) = alerts(database)
    assert (alert.episode, alert.onset_step, alert.opened_step) == (1, 201, 205)
    assert len(outbox(database, alert.id)) == 1
    with database.read() as uow:
        assert len(uow.alerts.changes(alert.id)) == 1


def test_a_commit_that_fails_is_judged_again(database: Database) -> None:
    store(database, entries(FAULT))
    judge = detection(database)
    real = database.write
    calls = iter([True, False])

    def failing(work: object) -> object:
        if not next(calls, True):
            raise RuntimeError("the disk is gone")
        return real(work)  # type: ignore[arg-type]

    judge._database = _Wrapped(database, failing)  # type: ignore[assignment]
    with pytest.raises(RuntimeError):
        judge.run_once("run")
    assert alerts(database) == []
    drain(judge)
    assert len(alerts(database)) == 1


class _Wrapped:
    def __init__(self, database: Database, write: object) -> None:
        self._database, self.write = database, write

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)


def test_a_second_process_cannot_judge_what_another_holds(database: Database) -> None:
    store(database, entries(FAULT[:230], cuts=[0, 100]))
    first, second = detection(database, "one"), detection(database, "two")
    drain(first)
    store(database, [replace(e, seq=9) for e in entries(FAULT[230:], cuts=[])])
    assert second.run_once("run") is False
    assert len(alerts(database)) == 1


def test_a_process_that_was_overtaken_is_fenced_out(database: Database) -> None:
    store(database, entries(FAULT[:200]))
    slow, quick = detection(database, "slow", lease_s=0.0), detection(database, "quick")
    slow._hold("run")
    slow._lease_s = 1e9  # it believes it still holds the run
    drain(quick)
    slow.run_once("run")  # fenced: nothing written, memory dropped
    assert slow._held == {}
    store(database, [replace(e, seq=99) for e in entries(FAULT[200:], cuts=[])])
    drain(quick)
    assert len(alerts(database)) == 1


def test_acknowledging_and_closing_by_hand(database: Database) -> None:
    store(database, entries(FAULT))
    judge = detection(database)
    drain(judge)
    (alert,) = alerts(database)
    acknowledge(database, alert.id, by="ada", note="looking", at=5001.0)
    drain(judge)
    (seen,) = alerts(database)
    assert (seen.state, seen.acknowledged_by, seen.acknowledged_note, seen.acknowledged_at) == (
        "acknowledged", "ada", "looking", 5001.0,
    )  # fmt: skip
    resolve(database, alert.id, by="ada", note="", was_fine=True, at=5002.0)
    drain(judge)
    (closed,) = alerts(database)
    assert (closed.state, closed.resolved_reason) == ("resolved", "was_fine")
    more = rows([STALE] * 30, first=261)
    store(database, [replace(e, seq=50) for e in entries(more, cuts=[])])
    drain(judge)
    assert len(alerts(database)) == 1  # closed by hand it stays closed while the fault goes on


def test_an_episode_over_before_its_message_left_sends_nothing(database: Database) -> None:
    store(database, entries(rows([CLEAN] * 200 + [STALE] * 20 + [CLEAN] * 60)))
    drain(detection(database))
    (alert,) = alerts(database)
    assert alert.state == "resolved"
    assert [(row.moment, row.state) for row in outbox(database, alert.id)] == [
        ("opened", "cancelled")
    ]


def test_what_was_told_is_told_to_be_over(database: Database) -> None:
    store(database, entries(FAULT))
    judge = detection(database)
    drain(judge)
    (alert,) = alerts(database)
    (row,) = database.write(
        lambda uow: uow.outbox.claim(owner="d", now=6000.0, lease_s=30.0, limit=1)
    )
    database.write(
        lambda uow: uow.outbox.settle(
            row.id, owner="d", state="sent", at=6000.0, due_at=None, attempt=None
        )
    )
    calm = rows([CLEAN] * 60, first=261)
    store(database, [replace(e, seq=50) for e in entries(calm, cuts=[])])
    drain(judge)
    assert [(r.moment, r.state) for r in outbox(database, alert.id)] == [
        ("opened", "sent"), ("resolved", "waiting"),
    ]  # fmt: skip
    (closed,) = alerts(database)
    assert (closed.state, closed.resolved_step) == ("resolved", 289)


def test_a_run_that_ends_closes_its_alerts_but_the_opening_still_goes_out(
    database: Database,
) -> None:
    log = entries(FAULT)
    last = replace(log[-1], records=(*log[-1].records, RunEnd("failed", 1300.0)))
    store(database, [*log[:-1], last])
    drain(detection(database))
    (alert,) = alerts(database)
    assert (alert.state, alert.resolved_reason) == ("resolved", "run_ended")
    assert [(r.moment, r.state) for r in outbox(database, alert.id)] == [("opened", "waiting")]


def test_going_back_to_before_an_alert_supersedes_it(database: Database) -> None:
    store(database, entries(FAULT))
    again = entries(rows([CLEAN] * 30, first=150), attempt="a1", ordinal=1, cuts=[])
    store(database, again)
    drain(detection(database))
    (alert,) = alerts(database)
    assert (alert.state, alert.resolved_reason) == ("resolved", "superseded")


def test_going_on_after_an_alert_keeps_it(database: Database) -> None:
    store(database, entries(FAULT))
    store(database, entries(rows([CLEAN] * 5, 261), attempt="a1", ordinal=1, cuts=[]))
    drain(detection(database))
    (alert,) = alerts(database)
    assert alert.state == "firing"


def test_values_of_an_abandoned_attempt_are_not_judged(database: Database) -> None:
    store(database, entries(rows([CLEAN] * 200)))
    store(database, entries(rows([CLEAN] * 40, 150), attempt="a1", ordinal=1, cuts=[]))
    late = [replace(e, seq=70) for e in entries(rows([STALE] * 60, 201), cuts=[])]
    store(database, late)
    drain(detection(database))
    assert alerts(database) == []


def test_a_snapshot_is_stored_at_most_every_30_s_and_at_the_end(database: Database) -> None:
    clock = FakeClock(5000.0)
    judge = Detection(database, clock, "one", snapshot_every_s=30.0)

    def saved() -> int | None:
        with database.read() as uow:
            snapshot = uow.readers.load_snapshot("run", READER)
        return snapshot.pos if snapshot else None

    log = entries(rows([CLEAN] * 100), cuts=range(0, 100, 25))
    store(database, log[:1])
    drain(judge)
    assert saved() is None
    clock.advance(31.0)
    store(database, log[1:2])
    drain(judge)
    assert saved() == 2
    store(database, log[2:3])
    drain(judge)
    assert saved() == 2
    judge.close()
    assert saved() == 3


def test_a_step_waits_for_its_source_but_not_for_ever(database: Database) -> None:
    log = entries(FAULT, cuts=[250])
    store(database, [log[0], replace(log[1], through_step=None)])
    log2 = entries(FAULT, cuts=[0, 204, 250])
    assert log2  # the first batch alone is not enough to open
    judge = detection(database)
    drain(judge)
    opened_by_batch = len(alerts(database))
    for at in (5015.0, 5030.0):
        database.write(lambda uow, at=at: uow.log.append_note("run", "tick", {}, at=at))
        drain(judge)
    (alert,) = alerts(database)
    assert opened_by_batch == 1
    assert alert.last_step == 260


def test_the_last_checkpoint_before_the_onset_is_in_the_words(database: Database) -> None:
    from monitor.services.alerting import alert_text

    store(database, entries(FAULT, facts={"price_per_hour": 36.0}))
    saved = Phase("p", "checkpoint", 200, 1199.0, 200, 1200.0, "/ck/200")
    database.write(lambda uow: uow.events.add_phase("run", "a0", saved, pos=1))
    drain(detection(database))
    (alert,) = alerts(database)
    with database.read() as uow:
        text = alert_text(uow, alert, moment="opened", base_url="http://box:8765")
    assert text.headline.endswith("stale data since step 201 (00:20) - critical")
    said = str(text)
    assert "100 % of the rows" in said or "% of the rows in the last 20 batches" in said
    assert "Last checkpoint before it: 200; going back loses 1 s." in said
    assert f"Show: http://box:8765/alerts/{alert.id}" in said


def test_who_cannot_tell_yet_says_what_it_would_take(database: Database) -> None:
    short = [
        Row(step, 1000.0 + step, {"entropy_minus_nll/probe": 0.0, "loss/probe": 2.0})
        for step in range(0, 100, 25)
    ]
    store(database, entries(short))
    judge = detection(database)
    drain(judge)
    judge.close()
    with database.read() as uow:
        assert doubts(uow, "run") == {"overconfidence": "needs about 53 more steps"}
