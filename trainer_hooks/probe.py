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
TABLE_SCALARS = 1 << 22
"""Logits looked at in one go, of a large vocabulary: two float32 tables of them take 32 MiB."""
HEAD_ROWS = 64
"""Tokens that go through a head on its own at once: with the tables of their statistics, and a copy
in float32, they take what the logits of ``SLICE_ROWS`` tokens would take."""
CACHED_SCALARS = 1 << 18
"""The same on a CPU: they stay in its cache while they are passed over again."""


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
    """Per-token statistics, each [N], computed in slices of at most ``SLICE_ROWS`` tokens."""
    import torch

    scalars = CACHED_SCALARS if logits_NV.device.type == "cpu" else TABLE_SCALARS
    count, rows = len(targets_N), min(SLICE_ROWS, max(8, scalars // vocab))
    raw = torch.empty(len(_RAW), count, device=logits_NV.device)
    tables = torch.empty(2, min(rows, count), vocab, device=logits_NV.device)
    for start in range(0, count, rows):
        x_NV = logits_NV[start : start + rows, :vocab].float()
        here = slice(start, start + len(x_NV))
        _fill(raw[:, here], x_NV, targets_N[here], tables[:, : len(x_NV)])
    return _statistics(dict(zip(_RAW, raw.unbind(), strict=True)), vocab)


_RAW = ("top", "target", "above", "reached", "below", "spread", "peak", "moment")
"""What one pass over a token's logits x finds: max x, x of the target, how many are above it and
how many reach it, mean (x - top), |x - mean|, max p, and the mean of (x - top) under p."""


def _fill(raw: Tensor, x_NV: Tensor, targets_N: Tensor, tables: Tensor) -> None:
    """Fill ``raw`` [len(_RAW), N]; ``tables`` [2, N, V] is room to work in.

    One softmax serves the loss, the entropy and the confidence; ranks are counted, as floats,
    which is faster than as flags.
    """
    import torch

    top, target, above, reached, below, spread, peak, moment = raw.unbind()
    shifted_NV, share_NV = tables.unbind()
    torch.amax(x_NV, -1, out=top)
    target_N1 = x_NV.gather(1, targets_N[:, None])
    target.copy_(target_N1.squeeze(1))
    torch.sum(torch.gt(x_NV, target_N1, out=shifted_NV), -1, out=above)
    torch.sum(torch.ge(x_NV, target_N1, out=shifted_NV), -1, out=reached)
    torch.sub(x_NV, top[:, None], out=shifted_NV)
    torch.softmax(shifted_NV, -1, out=share_NV)
    torch.amax(share_NV, -1, out=peak)
    torch.sum(share_NV.mul_(shifted_NV), -1, out=moment)
    torch.mean(shifted_NV, -1, out=below)
    torch.linalg.vector_norm(shifted_NV.sub_(below[:, None]), dim=-1, out=spread)


def _statistics(raw: dict[str, Tensor], vocab: int) -> dict[str, Tensor]:
    """The statistics of each token, from what ``_fill`` found.

    The largest probability is exp(top - logsumexp). Ties count with their expectation under a
    random choice among the equal ones, so that a model with uniform logits is not called right.
    """
    log_mass_N = -raw["peak"].log()
    logsumexp_N = raw["top"] + log_mass_N
    above_N = raw["above"]
    level_N = (raw["reached"] - above_N).clamp_min(1)
    found = {
        "loss": logsumexp_N - raw["target"],
        "top1": (1 - above_N).clamp_min(0) / level_N,
        "top10": ((10 - above_N) / level_N).clamp(0, 1),
        "rank": above_N + (level_N + 1) / 2,
        "entropy": log_mass_N - raw["moment"],
        "confidence": raw["peak"],
        "scale": raw["spread"].square() / vocab,
        "shift": raw["top"] + raw["below"],
        "logsumexp": logsumexp_N,
        "max": raw["top"],
    }
    broken_N = logsumexp_N.isnan()
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
    """Logits [rows * T, V] of consecutive rows of the probe, or of at most 64 tokens each where
    the forward gives hidden states and a head."""
    for start in range(0, len(probe.inputs_BT), rows):
        inputs = probe.inputs_BT[start : start + rows]
        out = probe.forward(model, inputs) if probe.forward else logits_of(model(inputs))
        if isinstance(out, tuple):
            hidden, head = out
            for part in hidden.reshape(-1, hidden.shape[-1]).split(HEAD_ROWS):
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
