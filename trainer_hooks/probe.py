"""The fixed held-out batch, and what a model says about it.

Shapes: B rows, T time, N judged tokens, V vocabulary, D hidden width. All statistics are means
over the judged tokens: those whose target is not ``ignore_index``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

IGNORE_INDEX = -100
ECE_BINS = 15
SLICE_ROWS = 256
"""Tokens whose logits are looked at in one go: bounds the memory of the statistics."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A fixed held-out batch.

    Args:
        inputs_BT: token ids; whatever ``forward`` (or else the model) takes as its one argument.
        targets_BT: the true next tokens; ``ignore_index`` marks those that do not count.
        vocab: the number of real tokens; logits beyond are padding and left out.
        sources: a name per row (such as its data set): every statistic is also given by source.
        forward: ``forward(model, inputs_BT)`` -> logits [B, T, V], or ``(hidden, head)`` with
            hidden [B, T, D] and ``head`` a callable [N, D] -> [N, V] or a weight [V, D]. Needed
            where calling the model does not give logits.

    64 documents and 16,384 tokens or more are recommended.
    """

    inputs_BT: Any
    targets_BT: Any
    ignore_index: int = IGNORE_INDEX
    vocab: int | None = None
    sources: Sequence[str] | None = None
    forward: Callable[[Any, Any], Any] | None = None


def calibration(
    logits: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = IGNORE_INDEX,
    vocab: int | None = None,
) -> dict[str, Tensor]:
    """All probe statistics of logits [..., V] against targets [...], as 0-dim tensors.

    Empty where no target counts: absent is not zero.

    Raises:
        ValueError: a target lies beyond the vocabulary.
    """
    flat_targets = targets.reshape(-1)
    judged = (flat_targets != ignore_index).nonzero().squeeze(1)
    if judged.numel() == 0:
        return {}
    targets_N = flat_targets[judged]
    width = logits.shape[-1] if vocab is None else vocab
    if int(targets_N.max()) >= width or int(targets_N.min()) < 0:
        raise ValueError(f"a target lies outside the vocabulary of {width}")
    logits_NV = logits.reshape(-1, logits.shape[-1])
    return summarise(token_statistics(logits_NV[judged], targets_N, width))


def token_statistics(logits_NV: Tensor, targets_N: Tensor, vocab: int) -> dict[str, Tensor]:
    """Per-token statistics, each [N], computed in slices of ``SLICE_ROWS`` tokens."""
    import torch

    parts = [
        _slice_statistics(logits[:, :vocab].float(), targets)
        for logits, targets in zip(
            logits_NV.split(SLICE_ROWS), targets_N.split(SLICE_ROWS), strict=True
        )
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _slice_statistics(x_NV: Tensor, targets_N: Tensor) -> dict[str, Tensor]:
    """One exponential serves the loss, the entropy and the confidence; ranks are counted.

    Ties count with their expectation under a random choice among the equal ones, so that a model
    with uniform logits is not called right.
    """
    top_N = x_NV.amax(-1)
    target_N1 = x_NV.gather(1, targets_N[:, None])
    above_N = (x_NV > target_N1).sum(-1)
    level_N = ((x_NV >= target_N1).sum(-1) - above_N).clamp_min(1)
    mean_N = x_NV.mean(-1)
    scale_N = (x_NV - mean_N[:, None]).square_().mean(-1)
    shifted_NV = x_NV - top_N[:, None]
    weight_NV = shifted_NV.exp()
    mass_N = weight_NV.sum(-1)
    log_mass_N = mass_N.log()
    # sum of w * x as batched dot products: no third table of N x V
    spread_N = (weight_NV.unsqueeze(1) @ shifted_NV.unsqueeze(2)).flatten()
    logsumexp_N = top_N + log_mass_N
    broken_N = logsumexp_N.isnan()
    found = {
        "loss": logsumexp_N - target_N1.squeeze(1),
        "top1": (1 - above_N).clamp_min(0) / level_N,
        "top10": ((10 - above_N) / level_N).clamp(0, 1),
        "rank": above_N + (level_N + 1) / 2,
        "entropy": log_mass_N - spread_N / mass_N,
        "confidence": 1 / mass_N,
        "scale": scale_N,
        "shift": mean_N,
        "logsumexp": logsumexp_N,
        "max": top_N,
    }
    return {name: value.masked_fill(broken_N, float("nan")) for name, value in found.items()}


def summarise(per_token: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Statistics of the tokens together, as 0-dim tensors, under the names of the series."""
    mean = {name: value.mean() for name, value in per_token.items()}
    return {
        "loss": mean["loss"],
        "top1": mean["top1"],
        "top10": mean["top10"],
        "median_rank": per_token["rank"].median(),
        "entropy": mean["entropy"],
        "confidence": mean["confidence"],
        "entropy_minus_nll": mean["entropy"] - mean["loss"],
        "ece": expected_calibration_error(per_token["confidence"], per_token["top1"]),
        "logit_scale": mean["scale"].sqrt(),
        "logit_shift": mean["shift"],
        "logsumexp": mean["logsumexp"],
        "logit_max": per_token["max"].max(),
    }


def expected_calibration_error(confidence_N: Tensor, right_N: Tensor) -> Tensor:
    """ECE = sum over 15 equal bins of n_b / N * |confidence_b - accuracy_b| (Guo et al. 2017)."""
    bins_N = (confidence_N.nan_to_num() * ECE_BINS).long().clamp_(0, ECE_BINS - 1)
    gaps = confidence_N.new_zeros(ECE_BINS).index_add_(0, bins_N, confidence_N - right_N)
    return gaps.abs().sum() / confidence_N.numel()


def forward_slices(model: Any, probe: Probe, rows: int) -> Iterator[Tensor]:
    """Logits [rows * T, V] of consecutive rows of the probe, or of at most 256 tokens each where
    the forward gives hidden states and a head."""
    for start in range(0, len(probe.inputs_BT), rows):
        inputs = probe.inputs_BT[start : start + rows]
        out = probe.forward(model, inputs) if probe.forward else logits_of(model(inputs))
        if isinstance(out, tuple):
            hidden, head = out
            for part in hidden.reshape(-1, hidden.shape[-1]).split(SLICE_ROWS):
                yield part @ head.T if hasattr(head, "T") else head(part)
        else:
            yield out.reshape(-1, out.shape[-1])


class NoLogitsError(Exception):
    """What a model returned holds no logits: a fused loss never makes them."""


def logits_of(out: Any) -> Tensor:
    """The logits in what a model usually returns: a tensor, ``.logits`` or ``["logits"]``, or in a
    tuple, where a loss may come before them.

    Raises:
        NoLogitsError: there are none.
    """
    if isinstance(out, Mapping) or hasattr(out, "logits"):
        out = out.get("logits") if isinstance(out, Mapping) else out.logits
    parts = out if isinstance(out, (tuple, list)) else (out,)
    for part in parts:
        if hasattr(part, "ndim") and part.ndim >= 2:
            logits: Tensor = part
            return logits
    raise NoLogitsError
