"""How long acts take: medians, turn and turn about, so that all of them meet the same load."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

ROUNDS = 9

Act = Callable[[], "float | None"]
"""Does something; gives the milliseconds that count, or None where all of them do."""


def interleaved(acts: Mapping[str, Act], rounds: int = ROUNDS) -> dict[str, float]:
    """The median time of each act (ms)."""
    took: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            began = time.perf_counter()
            own_ms = act()
            wall_ms = 1000 * (time.perf_counter() - began)
            took[name].append(wall_ms if own_ms is None else own_ms)
    return {name: statistics.median(times) for name, times in took.items()}


def around(before: Callable[[], object], between: Callable[[], object], after: Act) -> float:
    """Milliseconds of what comes before and after something that does not count."""
    began = time.perf_counter()
    before()
    paused = time.perf_counter()
    between()
    resumed = time.perf_counter()
    after()
    return 1000 * (paused - began + time.perf_counter() - resumed)


def trimmed(values: list[float]) -> float:
    """The mean without the twentieth that other work on the machine made slowest."""
    kept = sorted(values)[: max(1, len(values) - len(values) // 20)]
    return sum(kept) / len(kept)
