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
    "loss_spike": "monitor.detectors.loss_spike:LossSpike",
    "divergence": "monitor.detectors.divergence:Divergence",
    "slow_drift": "monitor.detectors.slow_drift:SlowDrift",
    "train_heldout_gap": "monitor.detectors.train_heldout_gap:TrainHeldoutGap",
    "resume_jump": "monitor.detectors.resume_jump:ResumeJump",
    "effective_lr_decay": "monitor.detectors.effective_lr_decay:EffectiveLrDecay",
    "logit_growth": "monitor.detectors.logit_growth:LogitGrowth",
    "source_regression": "monitor.detectors.source_regression:SourceRegression",
    "data_drift": "monitor.detectors.data_drift:DataDrift",
    "user_rule": "monitor.detectors.user_rule:UserRule",
    "data_stall": "monitor.detectors.data_stall:DataStall",
    "template_leak": "monitor.detectors.template_leak:TemplateLeak",
    "dead_update": "monitor.detectors.dead_update:DeadUpdate",
    "rank_desync": "monitor.detectors.rank_desync:RankDesync",
    "rank_twins": "monitor.detectors.rank_twins:RankTwins",
    "straggler": "monitor.detectors.straggler:Straggler",
    "throughput_drop": "monitor.detectors.throughput_drop:ThroughputDrop",
    "behind_plan": "monitor.detectors.behind_plan:BehindPlan",
    "run_silent": "monitor.detectors.run_silent:RunSilent",
    "disk_forecast": "monitor.detectors.disk_forecast:DiskForecast",
    "checkpoint_age": "monitor.detectors.checkpoint_age:CheckpointAge",
    "gpu_throttle": "monitor.detectors.gpu_throttle:GpuThrottle",
    "answers_drift": "monitor.detectors.answers_drift:AnswersDrift",
    "sampler_interference": "monitor.detectors.sampler_interference:SamplerInterference",
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
