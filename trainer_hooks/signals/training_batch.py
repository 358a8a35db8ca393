"""The probe's statistics on a batch that is trained on, from logits that the loop has anyway.

Nothing is computed twice and nothing waits: which targets count is known on the device only, so all
of them go through, and those that do not count weigh nothing.

Shapes: N tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer_hooks.probe import ECE_BINS, IGNORE_INDEX, token_statistics
from trainer_hooks.signals.probe import STATISTICS
from trainer_hooks.signals.shards import is_sharded
from trainer_hooks.wire import SeriesSpec, series_key

GROUP = "train"
COUNT = "judged_tokens"
MAX_TOKENS = 4096
"""Looked at, evenly spread over the batch."""


def specs() -> list[SeriesSpec]:
    """Of all series; the loss of the training batch is the loop's to say."""
    found = [
        SeriesSpec(
            key=series_key(name, GROUP),
            name=name,
            group=GROUP,
            unit=unit,
            family=family,
            better=better,  # type: ignore[arg-type]
            help=text.replace("on the fixed probe", "").strip(),
        )
        for name, (unit, family, better, text) in STATISTICS.items()
        if name != "loss"
    ]
    text = "tokens of the training batch that were looked at and count"
    key = series_key(COUNT, GROUP)
    return [*found, SeriesSpec(key, COUNT, GROUP, unit="token", family="accuracy", help=text)]


def training_batch(
    logits: Tensor, targets: Tensor, *, ignore_index: int = IGNORE_INDEX, vocab: int | None = None
) -> dict[str, Tensor]:
    """Statistics of logits [..., V] against targets [...], as 0-dim tensors by series key.

    A target beyond the vocabulary makes them NaN: to raise, the device would have to be waited for.

    Raises:
        ValueError: the shapes do not fit, or the logits lie in parts on several devices.
    """
    if is_sharded(logits) or logits.shape[:-1] != targets.shape:
        raise ValueError(f"logits {tuple(logits.shape)} for targets {tuple(targets.shape)}")
    with torch.no_grad():
        stride = max(1, -(-targets.numel() // MAX_TOKENS))
        logits_NV = logits.detach().reshape(-1, logits.shape[-1])[::stride]
        targets_N = targets.reshape(-1)[::stride]
        width = logits.shape[-1] if vocab is None else vocab
        judged_N = targets_N != ignore_index
        known_N = targets_N.clamp(0, width - 1)
        per_token = token_statistics(logits_NV, known_N, width)
        wrong_N = judged_N & (known_N != targets_N)
        found = _summarise(
            {name: v.masked_fill(wrong_N, float("nan")) for name, v in per_token.items()}, judged_N
        )
    return {series_key(name, GROUP): value for name, value in found.items()}


def _summarise(per_token: dict[str, Tensor], judged_N: Tensor) -> dict[str, Tensor]:
    """As ``trainer_hooks.probe.summarise``, over the judged tokens alone."""
    count = judged_N.sum()
    mean = {name: value.where(judged_N, 0.0).sum() / count for name, value in per_token.items()}
    gaps_N = (per_token["confidence"] - per_token["top1"]).where(judged_N, 0.0)
    bins_N = (per_token["confidence"].nan_to_num() * ECE_BINS).long().clamp_(0, ECE_BINS - 1)
    binned = gaps_N.new_zeros(ECE_BINS).index_add_(0, bins_N, gaps_N)
    return {
        "top1": mean["top1"],
        "top10": mean["top10"],
        "median_rank": per_token["rank"].masked_fill(~judged_N, float("nan")).nanmedian(),
        "entropy": mean["entropy"],
        "confidence": mean["confidence"],
        "entropy_minus_nll": mean["entropy"] - mean["loss"],
        "ece": binned.abs().sum() / count,
        "logit_scale": mean["scale"].sqrt(),
        "logit_shift": mean["shift"],
        "logsumexp": mean["logsumexp"],
        "logit_max": per_token["max"].masked_fill(~judged_N, float("-inf")).amax(),
        COUNT: count,
    }
