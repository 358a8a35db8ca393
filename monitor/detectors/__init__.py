"""The judges: one file per detector and this table. Third parties enter by entry points.

A name in the table is the detector's name everywhere: alerts, run-books, settings, metrics.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.detectors.base import Detector

DETECTORS: dict[str, str] = {
    "norm_blowup": "monitor.detectors.norm_blowup:NormBlowup",
    "overconfidence": "monitor.detectors.overconfidence:Overconfidence",
    "loss_plateau": "monitor.detectors.loss_plateau:LossPlateau",
    "non_finite": "monitor.detectors.non_finite:NonFinite",
    "stale_data": "monitor.detectors.stale_data:StaleData",
    "user_rule": "monitor.detectors.user_rule:UserRule",
}

ENTRY_POINT_GROUP = "watchkeeper.detectors"


def load_detector(name: str) -> type[Detector]:
    """The class behind a name, built-in or third-party.

    Raises:
        KeyError: no detector has this name.
    """
    target = detector_table()[name]
    module, _, attribute = target.partition(":")
    loaded: type[Detector] = getattr(import_module(module), attribute)
    return loaded


def detector_table() -> dict[str, str]:
    """All names and their ``module:Class``; a built-in name cannot be taken over."""
    foreign = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return foreign | DETECTORS
