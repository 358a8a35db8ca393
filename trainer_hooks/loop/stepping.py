"""What one step's call gives: scalars told apart by where they lie, micro-batches, timing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

PLAIN = frozenset({float, int})


def are_plain(given: dict[str, Any]) -> bool:
    """Whether all values are plain numbers of Python."""
    return set(map(type, given.values())) <= PLAIN


def split_scalars(given: dict[str, Any], cells: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Numbers go into ``cells``; tensors of one element, detached and 0-dim, into ``tensors``.

    Raises:
        ValueError: a tensor has more than one element.
    """
    if are_plain(given):
        cells.update(given)
        return
    for key, value in given.items():
        if type(value) is float or not hasattr(value, "detach"):
            cells[key] = value
        elif (whole := whole_here(value)) is not None:
            tensors[key] = keep_scalar(whole)


def whole_here(value: Any) -> Any:
    """A value this process has all of; None for a part of one.

    Reading a distributed scalar that is not whole here would start a collective.
    """
    if not hasattr(value, "placements"):
        return value
    whole = all(placement.is_replicate() for placement in value.placements)
    return value.to_local() if whole else None


def keep_scalar(tensor: Any) -> Any:
    """A 0-dim tensor that stays what it is: copied if the loop might still write into it.

    Raises:
        ValueError: it has more than one element.
    """
    if tensor.numel() != 1:
        raise ValueError(f"one number is wanted, not a tensor of shape {tuple(tensor.shape)}")
    kept = tensor.detach().reshape(())
    if tensor.device.type != "cpu" and tensor.grad_fn is None:
        return kept.clone()
    return kept


def is_non_finite(cells: dict[str, Any]) -> bool:
    """Whether a number among the values is NaN or infinite."""
    try:
        if math.isfinite(sum(cells.values())):  # no NaN or infinity gets lost in a sum
            return False
        return not all(map(math.isfinite, cells.values()))
    except (TypeError, OverflowError):  # something else is among them: the collector sorts it out
        return any(isinstance(v, float) and not math.isfinite(v) for v in cells.values())


@dataclass(slots=True)
class MicroBatches:
    """Losses of the micro-batches of one optimizer step, weighted by tokens where all have them."""

    losses: list[Any] = field(default_factory=list)
    tokens: list[int | None] = field(default_factory=list)
    is_plain_mean: bool = False
    """Whether a loss was ever averaged over micro-batches, for want of their tokens."""

    def add(self, loss: Any, tokens: int | None) -> None:
        """One more micro-batch."""
        self.losses.append(keep_scalar(loss) if hasattr(loss, "detach") else float(loss))
        self.tokens.append(tokens)

    def take(self) -> tuple[Any, int | None]:
        """Mean loss (nats per token) and tokens of the step; (None, None) if there were none."""
        losses, tokens = self.losses, self.tokens
        self.losses, self.tokens = [], []
        if not losses:
            return None, None
        known = [n for n in tokens if n is not None]
        if len(known) < len(losses):
            self.is_plain_mean = self.is_plain_mean or len(losses) > 1
            return sum(losses) / len(losses), None
        total = sum(known)
        if total <= 0:
            return None, total
        # A micro-batch without tokens has no loss: what it calls one may be NaN.
        pairs = [(loss, n) for loss, n in zip(losses, known, strict=True) if n > 0]
        return sum(loss * n for loss, n in pairs) / total, total


@dataclass(slots=True)
class StepClock:
    """Step times on the monotonic clock, without the declared phases in between."""

    ended_at_s: float | None = None
    phase_s: float = 0.0

    def end_step(self, now_s: float) -> float | None:
        """How long this step took (s); None for the first one, whose beginning nobody saw."""
        before, self.ended_at_s = self.ended_at_s, now_s
        phase_s, self.phase_s = self.phase_s, 0.0
        return None if before is None else max(now_s - before - phase_s, 0.0)
