"""What an evaluation of the user's own comes to: a share with its error, or pass@k."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from trainer_hooks.loop.series import binomial
from trainer_hooks.wire import series_key

PASS_AT = (1, 10)


def evaluated(
    name: str, k: int | Sequence[int], n: int, pass_at: Sequence[int] = PASS_AT
) -> dict[str, float]:
    """The values of an evaluation, by series key.

    Args:
        k: how many of ``n`` were right; or, for each problem, how many of its ``n`` tries were.
        pass_at: for problems with tries: which pass@k; one that takes more tries than ``n`` is left
            out.

    Raises:
        ValueError: a count is no share of ``n``, there is no problem, or a ``pass_at`` below 1.
    """
    if not isinstance(k, Iterable):  # an int of numpy's is none of Python's
        return binomial(name, k, n)
    passed = [int(count) for count in k]
    found: dict[str, float] = {}
    for tries in pass_at:
        if tries < 1:
            raise ValueError(f"pass@{tries}: at least one try is needed")
        if tries <= n:
            found |= _passes(f"{name}/pass_at_{tries}", [pass_chance(n, c, tries) for c in passed])
    return found


def pass_chance(n: int, c: int, k: int) -> float:
    """How likely one of ``k`` tries passes, where ``c`` of ``n`` did: 1 - C(n-c, k) / C(n, k).

    Unbiased, which 1 - (1 - c/n)^k is not (Chen et al., "Evaluating large language models trained
    on code", 2021, equation 1).

    Raises:
        ValueError: ``c`` of ``n`` is no share, or ``k`` is not from 1 to ``n``.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} with {c} of {n} passed")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def _passes(name: str, chances: Sequence[float]) -> dict[str, float]:
    """The mean over problems, and its standard error where there are several."""
    if not chances:
        raise ValueError(f"{name}: no problem")
    found = {series_key("eval", name): fmean(chances)}
    if len(chances) > 1:
        found[series_key("eval_error", name)] = stdev(chances) / math.sqrt(len(chances))
    return found
