"""Learning rates over a run: linear warm-up over 100 steps, then a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

WARMUP_STEPS = 100
PEAK_LR = 2.5e-3
FINAL_LR_SHARE = 0.1
DECAY_SHARE = 0.2
"""Of a warm-up, stable, decay schedule: the part that decays."""

Rate = Callable[[int, int], float]
"""Step and planned steps to the learning rate."""


def cosine_lr(step: int, steps: int) -> float:
    """A cosine down to a tenth of the peak."""
    if step <= WARMUP_STEPS:
        return PEAK_LR * step / WARMUP_STEPS
    done = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return PEAK_LR * (FINAL_LR_SHARE + (1 - FINAL_LR_SHARE) * fall)


def wsd_lr(step: int, steps: int) -> float:
    """Stable, then linearly down to a tenth over the last fifth."""
    if step <= WARMUP_STEPS:
        return PEAK_LR * step / WARMUP_STEPS
    decay = max(1.0, steps * DECAY_SHARE)
    done = min(1.0, max(0.0, (step - (steps - decay)) / decay))
    return PEAK_LR * (1 - (1 - FINAL_LR_SHARE) * done)


def constant_lr(step: int, steps: int) -> float:
    """The peak, after the warm-up."""
    return PEAK_LR * min(1.0, step / WARMUP_STEPS)
