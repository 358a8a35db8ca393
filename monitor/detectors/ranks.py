"""Series that exist once per rank: ``<name>@rank<k>``, or ``<name>/rank<k>``."""

from __future__ import annotations

import math
import re

from monitor.detectors.base import StepFrame

_RANK = re.compile(r"[/@](?:rank|r)_?(\d{1,6})$")


def rank_patterns(*names: str) -> tuple[str, ...]:
    """What a detector needs to see the per-rank series of these names."""
    return tuple(f"{name}{mark}r*" for name in names for mark in "@/")


def by_rank(frame: StepFrame, name: str) -> dict[int, float]:
    """The finite values of a name by rank, lowest rank first."""
    found: dict[int, float] = {}
    for key, value in frame.values.items():
        if key.startswith(name) and math.isfinite(value):
            match = _RANK.fullmatch(key[len(name) :])
            if match is not None:
                found[int(match.group(1))] = value
    return dict(sorted(found.items()))


def ranks_text(ranks: list[int]) -> str:
    """``rank 3``, ``ranks 0, 1 and 5``, ``ranks 0, 1, 2 and 61 more``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown, more = ranks[:8], len(ranks) - 8
    if more > 0:
        return f"ranks {', '.join(map(str, shown))} and {more} more"
    return f"ranks {', '.join(map(str, shown[:-1]))} and {shown[-1]}"
