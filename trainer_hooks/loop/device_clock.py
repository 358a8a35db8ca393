"""What a sample takes on a CUDA device, whose work goes on after the host's calls have returned.

An event is recorded before and after each part of a sample, and read on a later step, when both
have passed by themselves: nothing waits for them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_OPEN = 256
"""Parts that wait for their events; more are not timed."""


@dataclass(slots=True)
class _Part:
    """A part of a sample: its cadence, what it took on the host (s), and its events."""

    cadence: str
    host_s: float
    began: Any
    ended: Any


class DeviceClock:
    """Times parts of samples on one device.

    Args:
        mark: records a new event on the device's current stream; None where that cannot be done.
    """

    def __init__(self, mark: Callable[[], Any]) -> None:
        self._mark = mark
        self._open: deque[_Part] = deque()

    def begin(self) -> Any:
        """A part begins: its first event."""
        return self._mark() if len(self._open) < MOST_OPEN else None

    def end(self, cadence: str, began: Any, host_s: float) -> None:
        """The part that ``began`` ends; it took ``host_s`` on the host."""
        ended = self._mark() if began is not None else None
        if ended is not None:
            self._open.append(_Part(cadence, host_s, began, ended))

    def take(self) -> dict[str, float]:
        """By cadence, how much longer (s) parts that are over took on the device than on the host.

        Between its two events a device that waits for the host is idle as long as the host works,
        so that the longer of both times is what the part cost.
        """
        found: dict[str, float] = {}
        while self._open and self._open[0].ended.query():
            part = self._open.popleft()
            device_s = part.began.elapsed_time(part.ended) / 1000
            extra_s = max(0.0, device_s - part.host_s)
            found[part.cadence] = found.get(part.cadence, 0.0) + extra_s
        return found


def device_clock(model: Any) -> DeviceClock | None:
    """For a model on a CUDA device; None for others, where the host's clock sees everything."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    device = next((p.device for p in model.parameters() if p.device.type == "cuda"), None)
    if device is None:
        return None

    def mark() -> Any:
        if torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    return DeviceClock(mark)
