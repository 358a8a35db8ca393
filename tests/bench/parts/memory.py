"""How much tensor memory an act takes at its peak, as the allocator sees it.

The resident size of a process says little: freed pages stay with it, and buffers that were freed
before are used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

MIB = 1 << 20


def peak_mib(act: Callable[[], object]) -> float:
    """The most that tensors allocated within the act took together on the CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        act()
    kept: Any = profiler.profiler
    events = [e for e in kept.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak / MIB
