"""How little is told of how much: waits and windows of delivery. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.domain.alert import Alert

USER_RULE = "user_rule"

FOLD_S = 600.0
"""At most one message that something began, per rule and run, in this time; and one that it is
over."""

END_WAIT_S = 10.0
"""An end that is followed by a new beginning within this time is no end."""

GROUP_WAIT_S: Mapping[str, float] = {
    "run_silent": 60.0,
    "data_stall": 60.0,
    "throughput_drop": 60.0,
}
"""What one outage does to many runs is awaited this long, to be one message; of other detectors a
message takes along only what is waiting already."""

MOST_LISTED = 20
"""Runs or alerts a message names one by one."""


def wait_s(detector: str, moment: str) -> float:
    """How long a message waits for others like it before it may leave."""
    group = GROUP_WAIT_S.get(detector, 0.0)
    return max(END_WAIT_S, group) if moment == "resolved" else group


def rule_of(alert: Alert) -> str:
    """What counts as one rule: a detector, or one of the rules people wrote."""
    if alert.detector != USER_RULE:
        return alert.detector
    return f"{USER_RULE}:{alert.subject.partition(': ')[0]}"
