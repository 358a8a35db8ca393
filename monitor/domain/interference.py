"""What a sampling window did to the training beside it: step time, data wait and loss, inside and
after the window against before. Pure.

One stall is not the sampler's: who starves a loader does so step after step, from the beginning of
the window on. So the largest values are left out, and both halves of the window have to be slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

Effect = Literal["none", "slowed", "starved", "other_stall", "unknown"]

LEAST_BEFORE = 20
LEAST_INSIDE = 6
LEAST_HALF = 2
TRIM = 0.1
SLOWER = 1.10
STARVED_SHARE = 0.05
STARVED_RATIO = 3.0
SURE = 4.0
STALL = 2.0
"""``SLOWER``: of the usual step time. ``STARVED_*``: more wait than this share of a step, and than
so many times the usual. ``SURE``: standard errors. ``STALL``: a step so many times as long as one.
"""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step: its end (seconds UTC), what it took and waited (s), and its loss."""

    step: int
    t: float
    step_s: float
    wait_s: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """What came of a window. Times in seconds; ``loss_change`` is after minus before (nats).

    ``lasts``: the steps after the window are still as slow.
    """

    effect: Effect
    lasts: bool
    inside_n: int
    step_before_s: float
    step_inside_s: float | None
    step_after_s: float | None
    wait_before_s: float | None
    wait_inside_s: float | None
    loss_change: float | None
    loss_rose: bool

    @property
    def hurt(self) -> bool:
        return self.effect in ("slowed", "starved")

    def words(self) -> str:
        """The verdict in one sentence."""
        if self.effect == "unknown":
            return "too few steps to tell"
        if self.effect == "none":
            return "no lasting effect" if not self.loss_rose else "no slower, but the loss rose"
        if self.effect == "other_stall":
            return "a stall in the window, but not the sampler's doing; no lasting effect"
        slow = (self.step_inside_s or self.step_before_s) / self.step_before_s
        what = f"steps took x{slow:.2f} while it ran"
        if self.effect == "starved":
            what += (
                f", waiting {_ms(self.wait_inside_s)} for data instead of {_ms(self.wait_before_s)}"
            )
        tail = [", and still do" if self.lasts else "", "; the loss rose" if self.loss_rose else ""]
        return what + "".join(tail)


def split(
    rows: Sequence[StepRow], begin_at: float, end_at: float
) -> tuple[list[StepRow], list[StepRow], list[StepRow]]:
    """Rows before, inside (they overlap it) and after a window."""
    before = [row for row in rows if row.t <= begin_at]
    inside = [row for row in rows if row.t > begin_at and row.t - row.step_s < end_at]
    after = [row for row in rows if row.t - row.step_s >= end_at]
    return before, inside, after


def judge_window(
    before: Sequence[StepRow], inside: Sequence[StepRow], after: Sequence[StepRow]
) -> WindowVerdict:
    """What the window did. ``before`` shall hold no rows of other windows."""
    if len(before) < LEAST_BEFORE or not (inside or after):
        return _verdict("unknown", before, inside, after)
    usual_s = median(row.step_s for row in before)
    slow = _is_slower(before, inside) if len(inside) >= LEAST_INSIDE else False
    starved = slow and _waits_more(before, inside, usual_s)
    effect: Effect = "starved" if starved else "slowed" if slow else "none"
    if not slow and any(row.step_s > STALL * usual_s for row in inside):
        effect = "other_stall"
    return _verdict(effect, before, inside, after)


def _is_slower(before: Sequence[StepRow], now: Sequence[StepRow]) -> bool:
    """Both halves are slower than usual by more than chance, the largest steps left out.

    Halves of the time, not of the steps: while a loader starves there are few steps, and the many
    of the moments before and after would hide them.
    """
    middle = (now[0].t - now[0].step_s + now[-1].t) / 2
    halves = [row for row in now if row.t <= middle], [row for row in now if row.t > middle]
    return all(len(part) >= LEAST_HALF and _is_above(before, part) for part in halves)


def _is_above(before: Sequence[StepRow], now: Sequence[StepRow]) -> bool:
    usual = [row.step_s for row in before]
    level = _trimmed(usual)
    reached = _trimmed([row.step_s for row in now])
    spread = 1.4826 * median(abs(value - median(usual)) for value in usual)
    return reached > SLOWER * level and reached > level + SURE * spread / math.sqrt(len(now))


def _waits_more(before: Sequence[StepRow], inside: Sequence[StepRow], usual_s: float) -> bool:
    waited, waits = _mean(before, _wait), _mean(inside, _wait)
    if waited is None or waits is None:
        return False
    return waits - waited > STARVED_SHARE * usual_s and waits > STARVED_RATIO * waited


def _verdict(
    effect: Effect,
    before: Sequence[StepRow],
    inside: Sequence[StepRow],
    after: Sequence[StepRow],
) -> WindowVerdict:
    change, rose = _loss_change(before, after)
    return WindowVerdict(
        effect=effect,
        lasts=effect in ("slowed", "starved") and len(after) >= LEAST_INSIDE
        and _is_slower(before, after),
        inside_n=len(inside),
        step_before_s=_trimmed([row.step_s for row in before]) if before else math.nan,
        step_inside_s=_trimmed([row.step_s for row in inside]) if inside else None,
        step_after_s=_trimmed([row.step_s for row in after]) if after else None,
        wait_before_s=_mean(before, _wait),
        wait_inside_s=_mean(inside, _wait),
        loss_change=change,
        loss_rose=rose,
    )  # fmt: skip


def _loss_change(before: Sequence[StepRow], after: Sequence[StepRow]) -> tuple[float | None, bool]:
    """After minus before, and whether that is a rise beyond noise."""
    then = [row.loss for row in before[-len(after) or None :] if row.loss is not None]
    now = [row.loss for row in after if row.loss is not None]
    if len(then) < LEAST_INSIDE or len(now) < LEAST_INSIDE:
        return None, False
    change = fmean(now) - fmean(then)
    error = math.sqrt(_variance(then) / len(then) + _variance(now) / len(now))
    return change, change > SURE * error and change > 0


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _trimmed(values: Sequence[float]) -> float:
    """The mean without the largest tenth, at least one of them."""
    kept = sorted(values)[: max(1, len(values) - max(1, int(TRIM * len(values))))]
    return fmean(kept)


def _wait(row: StepRow) -> float | None:
    return row.wait_s


def _mean(rows: Sequence[StepRow], read: Callable[[StepRow], float | None]) -> float | None:
    values = [value for row in rows if (value := read(row)) is not None]
    return _trimmed(values) if values else None


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
