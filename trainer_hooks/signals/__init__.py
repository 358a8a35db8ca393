"""Signals: one file per family and this table. A new signal is one file and one line here."""

from __future__ import annotations

SIGNALS: dict[str, str] = {
    "weights": "trainer_hooks.signals.weights:Weights",
    "update": "trainer_hooks.signals.update:Update",
    "gradient": "trainer_hooks.signals.gradient:Gradient",
    "learning_rate": "trainer_hooks.signals.learning_rate:LearningRate",
    "probe": "trainer_hooks.signals.probe:ProbeSignal",
    "attention": "trainer_hooks.signals.attention:AttentionLogits",
}
