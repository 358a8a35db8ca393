"""Column names as people log them, and the series they are.

A name is cut into words at ``/ _ - .`` and blanks; a leading or trailing word for the split
(train, val, eval...) says what was measured on, the rest is the metric.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from trainer_hooks.wire import MAX_NAME_BYTES, SeriesSpec, series_key

Axis = Literal["step", "tokens", "samples", "epoch", "time_s", "train_time_s", "ignore"]


@dataclass(frozen=True, slots=True)
class Column:
    """What a column is: an axis, or a series (``spec``) after multiplying by ``scale``."""

    axis: Axis | None = None
    spec: SeriesSpec | None = None
    scale: float = 1.0


_AXES: dict[Axis, str] = {
    "step": "step steps global_step train_global_step trainer_global_step iteration iterations "
    "iter iters iter_num current_steps update num_updates optimizer_step train_step",
    "tokens": "tokens tokens_seen num_tokens consumed_tokens total_tokens tokens_total "
    "train_num_input_tokens_seen num_input_tokens_seen",
    "samples": "samples consumed_samples samples_seen samples_count",
    "epoch": "epoch epochs train_epoch epoch_num current_epoch",
    "time_s": "t ts time time_s timestamp wall_time walltime created_at datetime date elapsed_s "
    "elapsed elapsed_time runtime relative_time",
    "train_time_s": "train_time_s",
    "ignore": "percentage remaining_time total_steps total_flos",
}
AXIS_OF: dict[str, Axis] = {name: axis for axis, names in _AXES.items() for name in names.split()}
STEP_ORDER = (
    "train/global_step", "trainer/global_step", "global_step", "optimizer_step", "train_step",
    "step", "_step",
)  # fmt: skip
"""Where a log has several: the optimizer's own count before the logger's."""

LONGEST_KNOWN = 128
"""No name we know is longer."""

_TRAIN = frozenset({"train", "training", "tr"})
_HELD_OUT = frozenset(
    {"val", "valid", "validation", "eval", "evaluation", "heldout", "dev", "test"}
)
_LOSS = frozenset({"loss", "lm_loss", "ce", "ce_loss", "cross_entropy", "xent", "nll", "nll_loss"})

# metric: (name, unit, family, better, scale)
_ON_DATA: dict[str, tuple[str, str, str, str]] = {
    "top1": ("top1", "share", "accuracy", "higher"),
    "top_1": ("top1", "share", "accuracy", "higher"),
    "acc": ("top1", "share", "accuracy", "higher"),
    "accuracy": ("top1", "share", "accuracy", "higher"),
    "mean_token_accuracy": ("top1", "share", "accuracy", "higher"),
    "top10": ("top10", "share", "accuracy", "higher"),
    "median_rank": ("median_rank", "rank", "accuracy", "lower"),
    "conf": ("confidence", "share", "calibration", ""),
    "confidence": ("confidence", "share", "calibration", ""),
    "ece": ("ece", "share", "calibration", "lower"),
    "entropy": ("entropy", "nats", "calibration", ""),
    "logit_rms_centered": ("logit_scale", "", "logits", ""),
    "logit_scale": ("logit_scale", "", "logits", ""),
    "logit_shift": ("logit_shift", "", "logits", ""),
    "logit_max": ("logit_max", "", "logits", ""),
    "lse_mean": ("logsumexp", "", "logits", ""),
    "logsumexp": ("logsumexp", "", "logits", ""),
}

_WHOLE: dict[str, tuple[str, str, str, str, str, float]] = {
    "step_time_s": ("step_s", "", "s", "speed", "lower", 1.0),
    "step_time": ("step_s", "", "s", "speed", "lower", 1.0),
    "step_s": ("step_s", "", "s", "speed", "lower", 1.0),
    "step_ms": ("step_s", "", "s", "speed", "lower", 1e-3),
    "step_time_ms": ("step_s", "", "s", "speed", "lower", 1e-3),
    "iter_time_ms": ("step_s", "", "s", "speed", "lower", 1e-3),
    "iteration_time": ("step_s", "", "s", "speed", "lower", 1.0),
    "iter_time": ("step_s", "", "s", "speed", "lower", 1.0),
    "batch_time": ("step_s", "", "s", "speed", "lower", 1.0),
    "data_wait_s": ("data_wait_s", "", "s", "data", "lower", 1.0),
    "data_time_s": ("data_wait_s", "", "s", "data", "lower", 1.0),
    "data_time": ("data_wait_s", "", "s", "data", "lower", 1.0),
    "wait_ms": ("data_wait_s", "", "s", "data", "lower", 1e-3),
    "data_wait_share": ("data_wait_share", "", "share", "data", "lower", 1.0),
    "tokens_per_s": ("tokens_per_s", "", "tokens/s", "speed", "higher", 1.0),
    "tokens_per_sec": ("tokens_per_s", "", "tokens/s", "speed", "higher", 1.0),
    "tokens_per_second": ("tokens_per_s", "", "tokens/s", "speed", "higher", 1.0),
    "tok_per_sec": ("tokens_per_s", "", "tokens/s", "speed", "higher", 1.0),
    "tok_sec": ("tokens_per_s", "", "tokens/s", "speed", "higher", 1.0),
    "tps": ("tokens_per_s", "", "tokens/s", "speed", "higher", 1.0),
    "dup": ("repeat_share", "", "share", "data", "lower", 1.0),
    "repeat_share": ("repeat_share", "", "share", "data", "lower", 1.0),
    "clip_share": ("clip_share", "", "share", "gradient", "lower", 1.0),
    "changed_frac": ("update_coverage", "total", "share", "weights", "", 1.0),
    "update_coverage": ("update_coverage", "total", "share", "weights", "", 1.0),
    "mfu": ("mfu", "", "share", "speed", "higher", 1.0),
    "checksum_spread": ("checksum_spread", "", "", "weights", "lower", 1.0),
    "rank_param_rel_dist": ("checksum_spread", "", "", "weights", "lower", 1.0),
    "template_share": ("template_share", "", "share", "data", "lower", 1.0),
}

_GROUPS = {
    "emb": "emb", "embed": "emb", "embedding": "emb", "head": "head", "lm_head": "head",
    "qkv": "attn_qkv", "attn_qkv": "attn_qkv", "o": "attn_o", "attn_o": "attn_o", "fi": "mlp_in",
    "mlp_in": "mlp_in", "fo": "mlp_out", "mlp_out": "mlp_out", "norm": "norm", "router": "router",
    "lora": "lora", "other": "other", "total": "total", "hidden": "hidden",
}  # fmt: skip

# Longest prefixes first: what follows names the parameter group.
_PER_GROUP: tuple[tuple[str, str, str, str, bool], ...] = (
    ("gradient_norm", "grad_norm", "", "gradient", True),
    ("grad_norm", "grad_norm", "", "gradient", True),
    ("gnorm", "grad_norm", "", "gradient", True),
    ("weight_norm", "weight_norm", "", "weights", True),
    ("param_norm", "weight_norm", "", "weights", True),
    ("weight_rms", "weight_rms", "", "weights", True),
    ("w_rms", "weight_rms", "", "weights", True),
    ("w_norm", "weight_norm", "", "weights", True),
    ("update_ratio", "update_ratio", "", "weights", True),
    ("upd_ratio", "update_ratio", "", "weights", True),
    ("effective_lr_max", "effective_lr_max", "rad/step", "rotation", False),
    ("effective_lr", "effective_lr", "rad/step", "rotation", False),
    ("upd", "update_ratio", "", "weights", False),
    ("ang", "effective_lr", "rad/step", "rotation", False),
    ("w", "weight_norm", "", "weights", False),
)
_RANK = re.compile(r"(?:^|_)r(?:ank)?_?(\d{1,5})$")


def recognise(column: str) -> Column:
    """What a column is by its name alone; a name we do not know is a series of its own."""
    plain = _plain(column)
    if len(column) > LONGEST_KNOWN or not plain:
        return Column(spec=own_series(column))
    axis = AXIS_OF.get(plain)
    if axis is not None:
        return Column(axis=axis)
    if plain in ("train_time_ms", "elapsed_ms", "time_ms"):
        return Column(axis="train_time_s" if plain == "train_time_ms" else "time_s", scale=1e-3)
    return _whole(plain) or _rate(column, plain) or _per_group(plain) or _measured(column, plain)


def named(key: str) -> SeriesSpec:
    """The spec of a series a person named with a map, such as ``loss/heldout@code``."""
    name, _, source = key.partition("@")
    name, _, group = name.partition("/")
    unit, family = _known_as(name)
    return _spec(name or key, group, source, unit, family, "")


def _plain(column: str) -> str:
    return "_".join(word for word in re.split(r"[/\s.\-_|:]+", column.lower()) if word)


def _spec(
    name: str, group: str, source: str, unit: str, family: str, better: str, text: str = ""
) -> SeriesSpec:
    key = series_key(name, group, source)
    better_ = better if better in ("lower", "higher") else ""
    return SeriesSpec(key, name, group, source, unit, family, text, better_)  # type: ignore[arg-type]


def _known_as(name: str) -> tuple[str, str]:
    if name == "loss":
        return "nats", "loss"
    if name == "lr":
        return "", "learning_rate"
    for known, _, unit, family, _, _ in _WHOLE.values():
        if known == name:
            return unit, family
    for known, unit, family, _ in _ON_DATA.values():
        if known == name:
            return unit, family
    for _, known, unit, family, _ in _PER_GROUP:
        if known == name:
            return unit, family
    return "", "other"


def _whole(plain: str) -> Column | None:
    for text in (plain, plain.removeprefix("train_")):
        if text in _WHOLE:
            name, group, unit, family, better, scale = _WHOLE[text]
            return Column(spec=_spec(name, group, "", unit, family, better), scale=scale)
    return None


def _rate(column: str, plain: str) -> Column | None:
    found = re.fullmatch(r"(?:train_)?(?:lr|learning_rate)(?:_(?!mult|scale)(.+))?", plain)
    if found is None:
        return None
    # An optimizer's name keeps its case: people know it so.
    tail = re.split(r"(?:lr|learning_rate)[/\s.\-_]+", column, maxsplit=1, flags=re.IGNORECASE)
    group = tail[1] if found.group(1) and len(tail) == 2 else found.group(1) or "group0"
    return Column(spec=_spec("lr", group, "", "", "learning_rate", ""))


def _per_group(plain: str) -> Column | None:
    text = plain.removeprefix("train_")
    ranked = _RANK.search(text)
    source = f"rank{ranked.group(1)}" if ranked else ""
    text = text[: ranked.start()] if ranked else text
    for prefix, name, unit, family, whole_too in _PER_GROUP:
        rest = text.removeprefix(prefix)
        if rest == text or (rest and rest[0] != "_") or (not rest and not whole_too):
            continue
        group = _GROUPS.get(rest[1:], rest[1:] if whole_too else "") if rest else "total"
        return Column(spec=_spec(name, group, source, unit, family, "")) if group else None
    return None


def _measured(column: str, plain: str) -> Column:
    """A loss or an accuracy on the training or the held-out data, or just somebody's number."""
    split, metric = _split(plain)
    metric = metric.removesuffix("_step")
    if split == "heldout":
        metric = metric.removesuffix("_epoch")
    if metric in _LOSS:
        group = split or "train"
        return Column(spec=_spec("loss", group, "", "nats", "loss", "lower"))
    task = _task(metric)
    if split == "heldout" and task is not None:
        return Column(spec=_spec("loss", "heldout", task, "nats", "loss", "lower"))
    metric, source = _source(metric)
    if split and metric in _ON_DATA:
        name, unit, family, better = _ON_DATA[metric]
        group = "probe" if split == "heldout" else "train"
        return Column(spec=_spec(name, group, source, unit, family, better))
    return Column(spec=own_series(column))


def _source(metric: str) -> tuple[str, str]:
    """``top1`` and ``g0`` of ``top1_g0``: one of several sets it was measured on."""
    start, _, end = metric.rpartition("_")
    return (start, end) if start in _ON_DATA and metric not in _ON_DATA else (metric, "")


def _split(plain: str) -> tuple[str, str]:
    words = plain.split("_")
    for word, rest in ((words[0], words[1:]), (words[-1], words[:-1])):
        if rest and word in _TRAIN:
            return "train", "_".join(rest)
        if rest and word in _HELD_OUT:
            return "heldout", "_".join(rest)
    return "", plain


def _task(metric: str) -> str | None:
    """``g0`` of ``loss_g0`` and of ``g0_loss``: one of several evaluations."""
    task = metric.removeprefix("loss_").removesuffix("_loss")
    return None if task == metric or task in _TRAIN else task


def own_series(column: str) -> SeriesSpec:
    """A series under the column's own name, as far as that can be a name."""
    text = "".join(c if c.isprintable() else " " for c in column).strip() or "unnamed"
    name = text.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore")
    return SeriesSpec(name, name)
