"""Small robust statistics, pure numpy. Each returns plain floats."""

from __future__ import annotations

import math

import numpy as np

from monitor.domain.log import Floats

MAD_TO_SD = 1.4826
"""Median absolute deviation -> standard deviation, for a normal distribution."""


def median(values: Floats | list[float]) -> float:
    """The middle value; of none, 0."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    half = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[half])
    return float(ordered[half - 1] + ordered[half]) / 2.0


def noise_sd(values_N: Floats) -> float:
    """Standard deviation of the noise on a smooth curve, from successive differences."""
    if len(values_N) < 3:
        return 0.0
    steps = np.diff(values_N)
    return float(np.median(np.abs(steps - np.median(steps)))) * MAD_TO_SD / math.sqrt(2.0)


def bend_sd(values_N: Floats) -> float:
    """Noise on a curve of few points that falls or rises steeply, from its second differences."""
    if len(values_N) < 4:
        return 0.0
    bends = np.diff(values_N, n=2)
    return float(np.median(np.abs(bends - np.median(bends)))) * MAD_TO_SD / math.sqrt(6.0)


def theil_sen(x_N: Floats, y_N: Floats) -> float:
    """Slope as the median of the slopes of all pairs of different x; 0 where there is none."""
    first, second = np.triu_indices(len(x_N), k=1)
    run_P, rise_P = x_N[second] - x_N[first], y_N[second] - y_N[first]
    apart_P = run_P > 0
    return float(np.median(rise_P[apart_P] / run_P[apart_P])) if apart_P.any() else 0.0


def mann_kendall(values: list[float]) -> tuple[int, float]:
    """Direction (-1, 0, 1) and two-sided p of a monotone trend (normal approximation, ties kept).

    Mann (1945), Kendall (1975). Fewer than 5 values have no trend: p = 1.
    """
    n = len(values)
    if n < 5:
        return 0, 1.0
    array = np.asarray(values)
    first, second = np.triu_indices(n, k=1)
    score = float(np.sign(array[second] - array[first]).sum())
    _, counts = np.unique(array, return_counts=True)
    ties = float((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18.0
    if variance <= 0 or score == 0:
        return 0, 1.0
    z = (abs(score) - 1.0) / math.sqrt(variance)
    return (1 if score > 0 else -1), math.erfc(z / math.sqrt(2.0))
