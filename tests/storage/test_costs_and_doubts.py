"""What an alert costs is said alike in its text and its view; who cannot tell yet is listed."""

from __future__ import annotations

from monitor.services.alerting import alert_text
from monitor.services.costs import tokens_per_step
from monitor.services.latest import Latest
from monitor.services.overview import Overview
from monitor.storage.base import Database, UnitOfWork
from tests.fixtures.traces import Row, entries
from tests.storage.test_detection import FAULT, alerts, detection, drain, store
from trainer_hooks.wire import Phase

FACTS = {"price_per_hour": 36.0}


def begin(uow: UnitOfWork) -> None:
    """The run as ingest leaves it: last seen ten seconds after its last step."""
    uow.runs.ensure("run", at=1000.0)
    uow.runs.touch("run", at=1270.0, last_step=260, skew_s=0.0)
    saved = Phase("p", "checkpoint", 150, 1149.0, 150, 1150.0, "/ck/150")
    uow.events.add_phase("run", "a0", saved, pos=1)


def test_text_and_view_say_the_same(database: Database) -> None:
    rows = [Row(r.step, r.t, {**r.values, "tokens_seen": 500.0 * (r.step + 1)}) for r in FAULT]
    store(database, entries(rows, facts=FACTS))
    database.write(begin)
    drain(detection(database))
    (alert,) = alerts(database)
    with database.read() as uow:
        assert tokens_per_step(uow, "run") == 500.0
        view = Overview(Latest()).alert(uow, alert)
        text = str(alert_text(uow, alert, moment="opened"))
    assert view.lost_by_going_back_steps == alert.onset_step - 150
    assert view.lost_by_going_back_hours == (alert.onset_at - 1150.0) / 3600
    assert view.hours_since_onset == (1270.0 - alert.onset_at) / 3600
    assert view.tokens_since_onset == 500.0 * (260 - alert.onset_step)
    lost = round(alert.onset_at - 1150.0)
    assert f"Last checkpoint before it: 150; going back loses {lost} s." in text
    assert f"So far {1270 - round(alert.onset_at)} s, 29.5 k tokens" in text


def test_who_cannot_tell_yet_is_listed_with_what_sleeps(database: Database) -> None:
    short = [
        Row(step, 1000.0 + step, {"entropy_minus_nll/probe": 0.0, "loss/probe": 2.0})
        for step in range(0, 100, 25)
    ]
    store(database, entries(short))
    database.write(begin)
    judge = detection(database)
    drain(judge)
    judge.close()
    with database.read() as uow:
        run = uow.runs.get("run")
        assert run is not None
        asleep = Overview(Latest()).detail(uow, run).asleep
    assert ("overconfidence", "needs about 53 more steps") in [
        (one.what, one.missing) for one in asleep
    ]
