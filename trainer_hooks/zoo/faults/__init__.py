"""Faults by name: one file and one line each."""

from __future__ import annotations

from importlib import import_module

from trainer_hooks.zoo.faults.base import Fault

FAULTS: dict[str, str] = {
    "healthy": "trainer_hooks.zoo.faults.controls:Control",
    "stale_loader": "trainer_hooks.zoo.faults.stale_loader:StaleLoader",
    "over_training": "trainer_hooks.zoo.faults.over_training:OverTraining",
    "no_decay": "trainer_hooks.zoo.faults.no_decay:NoDecay",
    "zero_lr": "trainer_hooks.zoo.faults.zero_lr:ZeroLearningRate",
    "nan_loss": "trainer_hooks.zoo.faults.nan_loss:NanLoss",
    "bad_batch": "trainer_hooks.zoo.faults.bad_batch:BadBatch",
    "slow_loader": "trainer_hooks.zoo.faults.slow_loader:SlowLoader",
    "frozen_layer": "trainer_hooks.zoo.faults.frozen_layer:FrozenLayer",
    "bf16_weights": "trainer_hooks.zoo.faults.bf16_weights:Bf16Weights",
    "resume_noopt": "trainer_hooks.zoo.faults.resume_noopt:ResumeNoOpt",
    "lr_times_ten": "trainer_hooks.zoo.faults.lr_times_ten:LrTimesTen",
    "template_leak": "trainer_hooks.zoo.faults.template_leak:TemplateLeak",
    "label_shift": "trainer_hooks.zoo.faults.label_shift:LabelShift",
    "counted_twice": "trainer_hooks.zoo.faults.counted_twice:CountedTwice",
    "dropout_in_eval": "trainer_hooks.zoo.faults.dropout_in_eval:DropoutInEval",
    "source_regression": "trainer_hooks.zoo.faults.two_sources:SourceRegression",
    "starved_source": "trainer_hooks.zoo.faults.two_sources:StarvedSource",
    "slow_progress": "trainer_hooks.zoo.faults.slow_progress:SlowProgress",
    "short_answers": "trainer_hooks.zoo.faults.short_answers:ShortAnswers",
    "rank_desync": "trainer_hooks.zoo.faults.two_ranks:RankDesync",
    "same_seed": "trainer_hooks.zoo.faults.two_ranks:SameSeed",
    "control_two_ranks": "trainer_hooks.zoo.faults.two_ranks:TwoRanks",
    "control_grokking": "trainer_hooks.zoo.grokking:Grokking",
    "control_mix_change": "trainer_hooks.zoo.faults.two_sources:MixChange",
    "control_wsd": "trainer_hooks.zoo.faults.controls:StableDecay",
    "control_lr_restart": "trainer_hooks.zoo.faults.controls:LrRestart",
    "control_batch_ramp": "trainer_hooks.zoo.faults.controls:BatchRamp",
    "control_sft": "trainer_hooks.zoo.faults.tuning:Tuning",
    "control_lora": "trainer_hooks.zoo.faults.tuning:LowRank",
    "control_muon": "trainer_hooks.zoo.faults.muon:Muon",
    "control_muon_h": "trainer_hooks.zoo.faults.muon:HyperMuon",
    "control_long": "trainer_hooks.zoo.faults.long_runs:LongRun",
    "control_long_wsd": "trainer_hooks.zoo.faults.long_runs:LongStableDecay",
    "control_long_muon": "trainer_hooks.zoo.faults.long_runs:LongMuon",
}


def fault_class(name: str) -> type[Fault]:
    """The class behind a name of ``FAULTS``.

    Raises:
        ValueError: there is no such fault.
    """
    if name not in FAULTS:
        raise ValueError(f"no fault is called {name!r}; there are: {', '.join(FAULTS)}")
    module, _, attribute = FAULTS[name].partition(":")
    found: type[Fault] = getattr(import_module(module), attribute)
    return found
