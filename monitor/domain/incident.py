"""What one cause did to one run: several alerts, one incident, one card. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from monitor.domain.alert import Alert

SEVERITIES = ("info", "warning", "critical")
"""Rising."""

BRINGS: Mapping[str, frozenset[str]] = {
    "data_stall": frozenset({"stale_data", "throughput_drop", "loss_plateau"}),
    "stale_data": frozenset(
        {"overconfidence", "train_heldout_gap", "loss_plateau", "slow_drift", "loss_spike"}
        | {"answers_drift", "logit_growth"}
    ),
    "template_leak": frozenset({"overconfidence", "answers_drift", "train_heldout_gap"}),
    "train_heldout_gap": frozenset({"overconfidence", "loss_plateau", "slow_drift"}),
    "overconfidence": frozenset({"answers_drift", "logit_growth"}),
    "data_drift": frozenset({"source_regression", "loss_spike", "slow_drift"}),
    "norm_blowup": frozenset(
        {"logit_growth", "loss_spike", "divergence", "non_finite", "effective_lr_decay"}
        | {"loss_plateau"}
    ),
    "logit_growth": frozenset({"loss_spike", "divergence", "non_finite", "overconfidence"}),
    "effective_lr_decay": frozenset({"loss_plateau"}),
    "dead_update": frozenset({"loss_plateau"}),
    "loss_spike": frozenset({"divergence", "non_finite", "norm_blowup"}),
    "divergence": frozenset({"non_finite", "norm_blowup", "slow_drift"}),
    "non_finite": frozenset({"divergence", "dead_update"}),
    "rank_desync": frozenset({"divergence", "loss_spike", "loss_plateau"}),
    "rank_twins": frozenset({"stale_data", "loss_plateau", "train_heldout_gap"}),
    "straggler": frozenset({"throughput_drop", "behind_plan"}),
    "gpu_throttle": frozenset({"straggler", "throughput_drop", "behind_plan"}),
    "throughput_drop": frozenset({"behind_plan"}),
    "run_silent": frozenset({"throughput_drop", "behind_plan"}),
    "resume_jump": frozenset({"loss_spike", "divergence"}),
}
"""What the fault behind one detector is known to set off in others, directly."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Alerts of one run by onset, and the one that names them: the likely cause of the others."""

    id: str
    run: str
    lead: Alert
    alerts: tuple[Alert, ...]

    @property
    def open(self) -> bool:
        return any(alert.open for alert in self.alerts)

    @property
    def severity(self) -> str:
        return max((alert.severity for alert in self.alerts), key=SEVERITIES.index)

    @property
    def headline(self) -> str:
        """``One incident, 3 alerts``; of one alert, its title."""
        count = len(self.alerts)
        return f"One incident, {count} alerts" if count > 1 else self.lead.title


def related(one: str, other: str) -> bool:
    """Whether two detectors may tell of one cause: the same, or one brings the other about.

    Of rules people wrote nobody knows what brings them about.
    """
    return one != "user_rule" and (
        one == other
        or other in BRINGS.get(one, frozenset())
        or one in BRINGS.get(other, frozenset())
    )


def incident_of(alert: Alert, open_alerts: Iterable[Alert]) -> str:
    """The incident a newly opened alert belongs to: that of the open alerts of its run it goes
    with (the earliest opened of them), or one of its own."""
    kin = [
        one for one in open_alerts if one.run == alert.run and related(one.detector, alert.detector)
    ]
    first = min(kin, key=lambda one: (one.opened_step, one.id), default=alert)
    return first.incident or first.id


def incidents(alerts: Iterable[Alert]) -> list[Incident]:
    """All incidents of these alerts, those that began last first."""
    by_id: dict[str, list[Alert]] = {}
    for alert in alerts:
        by_id.setdefault(alert.incident or alert.id, []).append(alert)
    made = [_incident(name, members) for name, members in by_id.items()]
    return sorted(made, key=lambda one: (-one.alerts[0].opened_at, one.id))


def _incident(name: str, members: Sequence[Alert]) -> Incident:
    ordered = tuple(sorted(members, key=lambda one: (one.onset_step, one.opened_step, one.id)))
    return Incident(name, ordered[0].run, _lead(ordered), ordered)


def _lead(ordered: Sequence[Alert]) -> Alert:
    """The alert most others may follow from; of equals the worse, then the earlier."""

    def weight(alert: Alert) -> tuple[int, int]:
        brought = BRINGS.get(alert.detector, frozenset())
        return sum(other.detector in brought for other in ordered), SEVERITIES.index(alert.severity)

    return max(ordered, key=weight)
