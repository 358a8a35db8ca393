"""How long acts take: medians, turn and turn about, so that all of them meet the same load.

Wall time is what counts on a quiet machine; the thread's processor time, given beside it, still
says something on one that does other work.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds on the wall, and of this thread's processor time."""

    wall_ms: float
    cpu_ms: float

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.wall_ms + other.wall_ms, self.cpu_ms + other.cpu_ms)


Act = Callable[[], "Spent | None"]
"""Does something; gives what of it counts, or None where all of it does."""


def spent(act: Callable[[], object]) -> Spent:
    """What one act takes."""
    wall, cpu = time.perf_counter(), time.thread_time()
    act()
    return Spent(1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - cpu))


def interleaved(acts: Mapping[str, Act], rounds: int = ROUNDS) -> dict[str, Spent]:
    """The medians of each act."""
    took: dict[str, list[Spent]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            own: list[Spent | None] = []
            whole = spent(lambda act=act, own=own: own.append(act()))  # type: ignore[misc]
            took[name].append(own[0] or whole)
    return {name: _median(times) for name, times in took.items()}


def _median(times: list[Spent]) -> Spent:
    walls, cpus = [one.wall_ms for one in times], [one.cpu_ms for one in times]
    return Spent(statistics.median(walls), statistics.median(cpus))


def around(
    before: Callable[[], object], between: Callable[[], object], after: Callable[[], object]
) -> Spent:
    """What comes before and after something that does not count."""
    first = spent(before)
    between()
    return first + spent(after)


def trimmed(values: list[float]) -> float:
    """The mean without the twentieth that other work on the machine made slowest."""
    kept = sorted(values)[: max(1, len(values) - len(values) // 20)]
    return sum(kept) / len(kept)
