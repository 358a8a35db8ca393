"""How tensors changed in one optimizer step: size, angle, and how many scalars moved.

With W before, W' after and d = W - W': the part of d along W' is a = d.W' / |W'|, the part across
it has the length sqrt(|d|^2 - a^2) = |W| sin(angle), and |W'| + a = |W| cos(angle). That equals the
chord form 2 asin(|u - v| / 2) of the unit vectors, without another copy of the weights, and has
none of the cancellation of an arc cosine in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer_hooks.signals.norms import tensor_norms

CHUNK = 1 << 16
"""Scalars looked at together on a CPU: both copies stay in its cache, float32 sums stay exact."""

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


def measure_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> Change:
    """Compare weights with their copies, which are overwritten.

    Args:
        before: contiguous copies in float32 (float64 for float64).
        after: the tensors now, of the same shapes.
    """
    now = [tensor.detach() for tensor in after]
    if all(old.device.type == "cpu" and not old.is_complex() for old in before):
        rows = [_on_cpu(old, new) for old, new in zip(before, now, strict=True)]
        return Change(*torch.tensor(rows, dtype=torch.float64).unbind(1))
    return _on_device(before, now)


def _on_cpu(before: Tensor, after: Tensor) -> tuple[float, float, float, float]:
    """Before norm, change norm, angle and changed scalars, in one pass through the cache."""
    olds = before.view(-1).split(CHUNK)
    news = after.reshape(-1).split(CHUNK)
    change2 = along = after2 = 0.0
    changed = 0
    for old, raw in zip(olds, news, strict=True):
        new = raw.to(old.dtype)
        old.sub_(new)
        change2 += old.dot(old).item()
        along += old.dot(new).item()
        after2 += new.dot(new).item()
        changed += int(old.count_nonzero())
    across2 = change2 - along * along / after2 if after2 else 0.0
    if not math.isfinite(across2 + after2) or across2 < NEARLY_ALONG * change2:
        change2, along, after2, across2 = _in_float64(olds, news)
    return (*_norms_and_angle(change2, along, after2, across2), float(changed))


def _in_float64(
    olds: Sequence[Tensor], news: Sequence[Tensor]
) -> tuple[float, float, float, float]:
    """The four sums again, for a change along the weights and for squares beyond float32."""
    change2 = along = after2 = across2 = 0.0
    for old, new in _wide(olds, news):
        change2 += old.dot(old).item()
        along += old.dot(new).item()
        after2 += new.dot(new).item()
    share = along / after2 if after2 else 0.0
    for old, new in _wide(olds, news):
        across2 += (old - share * new).square().sum().item()
    return change2, along, after2, across2


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
    return Change(before_norm, change_norm, angle.masked_fill(still, 0.0), changed)


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
