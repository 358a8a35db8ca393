"""What is one incident, and which of its alerts names it."""

from __future__ import annotations

from dataclasses import replace

from monitor.detectors import DETECTORS
from monitor.domain.alert import Alert
from monitor.domain.incident import incident_of, incidents, related


def alert(detector: str, step: int, *, severity: str = "warning", state: str = "firing") -> Alert:
    return Alert(
        id=f"{detector}{step}", run="r", detector=detector, subject="", episode=1,
        state=state, severity=severity, title=detector, attempt="a", onset_step=step,
        onset_at=float(step), opened_step=step + 5, opened_at=float(step), last_step=step + 5,
    )  # type: ignore[arg-type]  # fmt: skip


def joined(*alerts: Alert) -> list[Alert]:
    """The alerts as they open one after the other."""
    opened: list[Alert] = []
    for one in alerts:
        opened.append(replace(one, incident=incident_of(one, [a for a in opened if a.open])))
    return opened


def test_what_stale_data_brings_is_one_incident_of_four_alerts() -> None:
    found = incidents(
        joined(
            alert("overconfidence", 240),
            alert("stale_data", 201, severity="critical"),
            alert("train_heldout_gap", 220),
            alert("loss_plateau", 230),
        )
    )
    assert [one.headline for one in found] == ["One incident, 4 alerts"]
    assert (found[0].lead.detector, found[0].severity, found[0].open) == (
        "stale_data", "critical", True,
    )  # fmt: skip


def test_what_has_nothing_to_do_with_it_is_an_incident_of_its_own() -> None:
    found = incidents(
        joined(alert("stale_data", 10), alert("rank_desync", 20), alert("disk_forecast", 30))
    )
    assert [len(one.alerts) for one in found] == [1, 1, 1]
    assert found[0].headline == "disk_forecast"


def test_an_incident_that_is_over_takes_nothing_more() -> None:
    over = replace(alert("stale_data", 10, state="resolved"), incident="stale_data10")
    later = alert("loss_plateau", 900)
    assert incident_of(later, [one for one in [over] if one.open]) == later.id


def test_other_runs_have_incidents_of_their_own() -> None:
    here = alert("stale_data", 10)
    there = replace(alert("loss_plateau", 20), run="other")
    assert incident_of(there, [here]) == there.id


def test_kinship_is_mutual() -> None:
    for one in DETECTORS:
        assert related(one, one) == (one != "user_rule")
        for other in DETECTORS:
            assert related(one, other) == related(other, one)
