"""The last N values of a series, kept in order: medians and quantiles at a microsecond a value."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable


class Rolling:
    """A window of at most ``size`` finite values."""

    __slots__ = ("_ordered", "_values", "size")

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        self.size = size
        self._values: deque[float] = deque(values)
        self._ordered = sorted(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """Take in a value; the oldest leaves when there are more than ``size``."""
        self._values.append(value)
        insort(self._ordered, value)
        if len(self._values) > self.size:
            oldest = self._values.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]

    @property
    def oldest(self) -> float:
        """The value that leaves next; there must be one."""
        return self._values[0]

    def clear(self) -> None:
        self._values.clear()
        self._ordered.clear()

    def median(self) -> float:
        """The middle value; of none, 0."""
        count = len(self._ordered)
        if not count:
            return 0.0
        half = count // 2
        if count % 2:
            return self._ordered[half]
        return (self._ordered[half - 1] + self._ordered[half]) / 2.0

    def quantile(self, share: float) -> float:
        """The value that ``share`` of the others lie below; of none, 0."""
        return self._ordered[int(share * (len(self._ordered) - 1))] if self._ordered else 0.0

    def snapshot(self) -> list[float]:
        """The values in order of arrival: all that is needed to go on."""
        return list(self._values)
