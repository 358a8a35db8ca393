"""How tensors changed in one optimizer step: size, angle, and how many scalars moved.

With W before, W' after and d = W - W': the part of d along W' is a = d.W' / |W'|, the part across
it has the length sqrt(|d|^2 - a^2) = |W| sin(angle), and |W'| + a = |W| cos(angle). That equals the
chord form 2 asin(|u - v| / 2) of the unit vectors, without another copy of the weights, and has
none of the cancellation of an arc cosine in float32.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trainer_hooks.signals.norms import tensor_norms

CHUNK = 1 << 18
"""Scalars looked at together on a CPU: both copies stay in its cache."""

NEARLY_ALONG = 1e-3
"""Below this share of |d|^2 across W', float32 sums no longer tell the angle to four digits."""


@dataclass(frozen=True, slots=True)
class Change:
    """How tensors changed; each field [number of tensors], float64.

    ``angle`` is in radians and 0 where a norm is 0, before or after: no direction, no angle.
    """

    before_norm: Tensor
    change_norm: Tensor
    angle: Tensor
    changed: Tensor
    after_norm: Tensor | None = None


def measure_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> Change:
    """Compare weights with their copies, which are overwritten.

    Args:
        before: contiguous copies in float32 (float64 for float64).
        after: the tensors now, of the same shapes.
    """
    now = [tensor.detach() for tensor in after]
    if all(old.device.type == "cpu" and not old.is_complex() for old in before):
        return _on_cpu(before, now)
    return _on_device(before, now)


def measure_part(before: Tensor, after: Tensor) -> Tensor:
    """The sums [|d|^2, d.W', |W'|^2, changed] of one process's part of a tensor, float64 [4].

    They add up over processes; in float64, since nobody can look twice at the whole.
    """
    now = after.detach().to(before.dtype)
    sums = before.new_zeros(4, dtype=torch.float64)
    for old, new in zip(before.view(-1).split(CHUNK), now.reshape(-1).split(CHUNK), strict=True):
        wide_old, wide_new = old.double(), new.double()
        wide_old -= wide_new
        parts = [wide_old @ wide_old, wide_old @ wide_new, wide_new @ wide_new]
        sums += torch.stack([*parts, wide_old.count_nonzero().double()])
    return sums


def change_of_sums(sums: Tensor) -> Change:
    """From the sums [number of tensors, 4] of whole tensors, as ``measure_part`` gives them."""
    change2, along, after2, changed = sums.unbind(1)
    before2 = (after2 + 2 * along + change2).clamp_min(0)
    after_norm = after2.sqrt()
    across2 = (change2 - (along.square() / after2).nan_to_num()).clamp_min(0)
    angle = torch.atan2(across2.sqrt(), after_norm + along / after_norm)
    still = (before2 == 0) | (after2 == 0)
    return Change(
        before2.sqrt(), change2.sqrt(), angle.masked_fill(still, 0.0), changed, after_norm
    )


def _on_cpu(before: Sequence[Tensor], after: Sequence[Tensor]) -> Change:
    """In one pass through the cache; nothing is read as a number before all sums are there."""
    dots: list[Tensor] = []
    owners: list[int] = []
    changed: list[float] = []
    count = _counter()
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        moved = 0.0
        for left, right in zip(
            old.view(-1).split(CHUNK), new.reshape(-1).split(CHUNK), strict=True
        ):
            axis = right if right.dtype is left.dtype else right.to(left.dtype)
            left.sub_(axis)
            dots += [left.dot(left), left.dot(axis), axis.dot(axis)]
            owners.append(place)
            moved += count(left)
        changed.append(moved)
    parts = torch.stack(dots).double().view(-1, 3)
    sums = parts.new_zeros(len(before), 4)
    sums[:, :3].index_add_(0, torch.tensor(owners), parts)
    sums[:, 3] = torch.tensor(changed, dtype=torch.float64)
    found = change_of_sums(sums)
    after_norm = sums[:, 2].sqrt()
    for place in _unclear(sums):
        wide = _in_float64(before[place], after[place])
        fields = found.before_norm, found.change_norm, found.angle, after_norm
        for field, value in zip(fields, wide, strict=True):
            field[place] = value
    return replace(found, after_norm=after_norm)


def _counter() -> Callable[[Tensor], int]:
    """Counts the scalars of a chunk that are not 0; NaN is not.

    numpy, which torch loads where there is one, takes a third of the time of ``count_nonzero``.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not _is_shared_with_numpy():
        return lambda chunk: int(chunk.count_nonzero())
    flags = numpy.empty(CHUNK, dtype=bool)

    def count(chunk: Tensor) -> int:
        return int(numpy.count_nonzero(numpy.not_equal(chunk.numpy(), 0, out=flags[: len(chunk)])))

    return count


@functools.cache
def _is_shared_with_numpy() -> bool:
    """Whether this torch and the numpy beside it understand each other."""
    try:
        return len(torch.zeros(1).numpy()) == 1
    except RuntimeError:
        return False


def _unclear(sums: Tensor) -> list[int]:
    """Which tensors have to be looked at again in float64; one read for all."""
    change2, along, after2, _ = sums.unbind(1)
    across2 = change2 - (along.square() / after2).nan_to_num()
    clear = (across2 + after2).isfinite() & (across2 >= NEARLY_ALONG * change2)
    return [place for place, ok in enumerate(clear.tolist()) if not ok]


def _in_float64(before: Tensor, after: Tensor) -> tuple[float, float, float, float]:
    """Norms and angle, for a change along the weights and for squares beyond float32."""
    olds, news = before.view(-1).split(CHUNK), after.reshape(-1).split(CHUNK)
    sums = torch.zeros(3, dtype=torch.float64)
    for old, new in _wide(olds, news):
        sums += torch.stack([old.dot(old), old.dot(new), new.dot(new)])
    change2, along, after2 = sums.tolist()
    share = along / after2 if after2 else 0.0
    across = torch.zeros((), dtype=torch.float64)
    for old, new in _wide(olds, news):
        across += (old - share * new).square().sum()
    found = _norms_and_angle(change2, along, after2, float(across))
    return (*found, math.sqrt(after2) if after2 == after2 else math.nan)


def _wide(olds: Sequence[Tensor], news: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Chunk by chunk in float64: never a whole tensor."""
    for old, new in zip(olds, news, strict=True):
        yield old.double(), new.double()


def _norms_and_angle(
    change2: float, along: float, after2: float, across2: float
) -> tuple[float, float, float]:
    before2 = after2 + 2 * along + change2
    if math.isnan(before2):
        return math.nan, math.nan, math.nan
    after_norm, before_norm = math.sqrt(after2), math.sqrt(max(0.0, before2))
    if not after_norm or not before_norm:
        return before_norm, math.sqrt(change2), 0.0
    cosine_part = after_norm + along / after_norm
    angle = math.atan2(math.sqrt(max(0.0, across2)), cosine_part)
    return before_norm, math.sqrt(change2), angle


def _on_device(before: Sequence[Tensor], after: Sequence[Tensor]) -> Change:
    """The same where nobody may wait for a value: the part along W' is always taken out."""
    wide = [new.to(old.dtype) for new, old in zip(after, before, strict=True)]
    before_norm = tensor_norms(before)
    after_norm = tensor_norms(wide)
    torch._foreach_sub_(list(before), wide)
    change_norm = tensor_norms(before)
    changed = torch.stack([old.count_nonzero() for old in before]).double()
    along = _take_out(before, wide, after_norm)
    # What the first pass left along W' by rounding; of second order, so once more is enough.
    rest = _dots(before, wide) / after_norm
    across = (tensor_norms(before) ** 2 - rest**2).clamp_min(0).sqrt()
    still = (before_norm == 0) | (after_norm == 0)
    angle = torch.atan2(across, after_norm + along + rest)
    return Change(before_norm, change_norm, angle.masked_fill(still, 0.0), changed, after_norm)


def _take_out(changes: Sequence[Tensor], axes: Sequence[Tensor], axis_norms: Tensor) -> Tensor:
    """Take the part along each axis out of each change, in place; its signed length."""
    dots = _dots(changes, axes)
    shares = -(dots / axis_norms.square()).nan_to_num()
    for change, axis, share in zip(changes, axes, shares.unbind(), strict=True):
        change.addcmul_(axis, share.to(change.dtype))
    return dots / axis_norms


def _dots(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    return torch.stack([_dot(a, b) for a, b in zip(left, right, strict=True)])


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Real inner product of two tensors of one shape, float64."""
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    product = torch.vdot(flat_a, flat_b).real if a.is_complex() else flat_a.dot(flat_b)
    return product.double()
