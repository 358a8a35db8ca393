"""Thresholds of the plateau detector, each stated once, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.detectors.plateau_causes import CauseParams


@dataclass(frozen=True, slots=True)
class Params:
    """``windows``: blocks, about a golden ratio apart. ``power`` and ``z``: in standard deviations;
    below 4 healthy runs were called flat. ``observed_share``: a fifth of what was expected is no
    progress. ``in_a_row``: blocks at one scale. ``material``: an expected drop below this share of
    the loss is worth nobody's night. ``drop_share``: the first tenth still bears the warm-up.
    ``before``: blocks a fit needs. ``before_cut``,
    ``after_cut``, ``power_cut``: where the learning rate was cut off between two steps there is a
    second witness, and less is enough. ``train_points``: 16 batches to a block of the batch loss.
    ``recovered_share``: half of the expected progress ends it. ``memorised_nats``: a loss
    below this has nowhere left to fall. ``level_jump``: standard deviations by which a new attempt
    may differ and still be the same curve. ``jump_sd``, ``jump_share``: a block this far above the
    fit, by both, is a spike whose aftermath the plateau is. ``no_progress_*``: flat since the very
    first values, by less than 0.5 % of the loss after so many points."""

    windows: tuple[int, ...] = (6, 10, 16, 26, 42, 68)
    power: float = 4.0
    z: float = 4.0
    observed_share: float = 0.2
    in_a_row: int = 3
    material: float = 0.005
    drop_share: float = 0.10
    before: int = 8
    before_cut: int = 5
    after_cut: int = 4
    power_cut: float = 2.0
    train_points: int = 16
    recovered_share: float = 0.5
    memorised_nats: float = 0.05
    level_jump: float = 6.0
    jump_sd: float = 10.0
    jump_share: float = 0.1
    no_progress_share: float = 0.005
    no_progress_points: int = 500
    no_progress_evals: int = 12
    no_progress_steps: int = 500
    causes: CauseParams = field(default_factory=CauseParams)
