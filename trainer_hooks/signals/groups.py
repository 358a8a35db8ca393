"""Parameters under clean names, sorted into groups by name pattern.

Groups: emb head emb_head (tied) attn_qkv attn_o mlp_in mlp_out router lora norm other; attn_q,
attn_k and attn_v where the model has them apart. Patterns of the user's own go before these, and a
fused parameter can be cut into declared slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from trainer_hooks.signals.base import NamedParameter, Subject
from trainer_hooks.signals.shards import is_sharded

TOTAL = "total"
Slices = Mapping[str, tuple[int, int]]
"""Group -> first place, and the one after the last, along the dimension that they fill."""

_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
_HOLD_MODULE = {"DistributedDataParallel", "DataParallel", "DeepSpeedEngine"}
"""Wrappers that call what they hold ``module``, as a layer of somebody's own may be called."""

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("lora", r"lora_|\.lora\b"),
    ("router", r"router|(?:moe|mlp|ffn|experts?)\.gate\.|gating"),
    ("norm", r"norm|(?:^|[._])ln(?:_?\w{1,3})?\.|layer_?norm"),
    ("head", r"lm_head|embed_out|(?:^|\.)(?:head|output|score|unembed)\.(?:weight|bias)$"),
    ("emb", r"emb|(?:^|\.)(?:wte|wpe|shared)\."),
    ("attn_qkv", r"c_attn|qkv|query_key|in_proj|\bkv_"),
    ("attn_q", r"query|\bq_|(?:attn|attention)\w*\.(?:w?q|c_q|to_q)\b|\.(?:wq|to_q)\."),
    ("attn_k", r"\.key\b|\bk_proj|(?:attn|attention)\w*\.(?:w?k|c_k|to_k)\b|\.(?:wk|to_k)\."),
    ("attn_v", r"\.value\b|\bv_proj|(?:attn|attention)\w*\.(?:w?v|c_v|to_v)\b|\.(?:wv|to_v)\."),
    (
        "attn_o",
        r"(?:attn|attention)\w*\.(?:c_proj|proj|dense|out_proj|wo|o|output\.dense)\b|o_proj|out_proj",
    ),
    (
        "mlp_out",
        r"down_proj|dense_4h_to_h|(?:mlp|ffn|feed_forward|relu_?dense|DenseReluDense)\w*\."
        r"(?:c_proj|proj|w2|wo|fc2|fc_out|lin2|out)\b|(?:^|\.)(?:fc2|w2|lin2|linear2)\."
        r"|(?:^|\.)output\.dense",
    ),
    (
        "mlp_in",
        r"up_proj|gate_proj|gate_up|dense_h_to_4h|c_fc|intermediate|"
        r"(?:mlp|ffn|feed_forward|DenseReluDense)\w*\.(?:w1|w3|wi\w*|fc1|fc|fc_in|lin1|in|gate)\b"
        r"|(?:^|\.)(?:fc1|w1|w3|lin1|linear1)\.",
    ),
)
_COMPILED = tuple((group, re.compile(pattern, re.IGNORECASE)) for group, pattern in _PATTERNS)


def clean_name(name: str, held: frozenset[str] = frozenset()) -> str:
    """The name without what compiling and wrapping put into it.

    ``held``: full prefixes (such as ``module.``) where a wrapper holds its module; a layer that
    happens to be called so keeps its name.

    >>> clean_name("module._orig_mod.blocks.0.attn.qkv_proj.weight", frozenset({"module."}))
    'blocks.0.attn.qkv_proj.weight'
    """
    for prefix in sorted(held, key=len, reverse=True):
        if name.startswith(prefix):
            name = prefix.removesuffix("module.") + name[len(prefix) :]
    return _WRAPPERS.sub("", name)


def held_prefixes(model: Any) -> frozenset[str]:
    """Where in the names of a model's parameters a wrapper says ``module.``."""
    found = set()
    for name, part in model.named_modules(remove_duplicate=False):
        if any(kind.__name__ in _HOLD_MODULE for kind in type(part).__mro__):
            found.add(f"{name}.module." if name else "module.")
    return frozenset(found)


def unwrapped(model: Any) -> Any:
    """The user's own module inside of compiling and replicating wrappers."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif any(kind.__name__ in _HOLD_MODULE for kind in type(model).__mro__):
            model = model.module
        else:
            return model


def group_of(name: str, own: Mapping[str, str] = MappingProxyType({})) -> str:
    """The group of a clean parameter name; ``other`` where no pattern fits.

    ``own``: group -> pattern, tried first and in this order.

    >>> group_of("transformer.h.3.attn.c_attn.weight")
    'attn_qkv'
    """
    for group, text in own.items():
        if re.search(text, name):
            return group
    return next((group for group, pattern in _COMPILED if pattern.search(name)), "other")


def named_parameters(
    model: Any,
    optimizers: Sequence[Any] = (),
    own: Mapping[str, str] = MappingProxyType({}),
    slices: Mapping[str, Slices] = MappingProxyType({}),
) -> list[NamedParameter]:
    """Every parameter once, trainable or not, and what only an optimizer knows.

    A matrix that is both embedding and head is in the group ``emb_head``; other shared tensors go
    by their first name. ``own`` as in ``group_of``; ``slices``: pattern of a name -> its slices.

    Raises:
        ValueError: slices that are not a parameter's.
    """
    names: dict[int, list[str]] = {}
    tensors: dict[int, Tensor] = {}
    held = held_prefixes(model)
    for name, tensor in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(tensor), []).append(clean_name(name, held))
        tensors[id(tensor)] = tensor
    owned = set()
    for name, tensor in _optimizer_parameters(optimizers):
        owned.add(id(tensor))
        if id(tensor) not in tensors:
            names[id(tensor)], tensors[id(tensor)] = [name], tensor
    found = [
        NamedParameter(
            name=called[0],
            group=_group_of_all(called, own),
            whole=tensors[key],
            owned=key in owned or not optimizers,
        )
        for key, called in names.items()
    ]
    return [part for parameter in found for part in _cut(parameter, slices)]


def _cut(parameter: NamedParameter, slices: Mapping[str, Slices]) -> list[NamedParameter]:
    """The parameter's slices; itself where none are declared, or where it lies in shards."""
    declared = next((v for text, v in slices.items() if re.search(text, parameter.name)), None)
    if declared is None or is_sharded(parameter.whole) or parameter.whole.ndim == 0:
        return [parameter]
    shape, end = parameter.whole.shape, max(last for _, last in declared.values())
    dims = [dim for dim, size in enumerate(shape[:2]) if size == end]
    if not dims:
        raise ValueError(f"slices up to {end} of {parameter.name}, whose shape is {tuple(shape)}")
    return [
        replace(
            parameter,
            name=f"{parameter.name}[{group}]",
            group=group,
            cut=(dims[0], first, last - first),
        )
        for group, (first, last) in declared.items()
    ]


def _group_of_all(names: list[str], own: Mapping[str, str]) -> str:
    groups = {group_of(name, own) for name in names}
    return "emb_head" if {"emb", "head"} <= groups else group_of(names[0], own)


def _optimizer_parameters(optimizers: Sequence[Any]) -> Iterable[tuple[str, Tensor]]:
    for index, optimizer in enumerate(optimizers):
        for number, group in enumerate(optimizer.param_groups):
            for place, tensor in enumerate(group["params"]):
                yield f"optimizer{index}.group{number}.{place}", tensor


def measurable(parameters: Iterable[NamedParameter]) -> list[NamedParameter]:
    """Parameters that hold measurable numbers: floating or complex, not empty."""
    return [
        parameter
        for parameter in parameters
        if parameter.tensor.numel()
        and (parameter.tensor.is_floating_point() or parameter.tensor.is_complex())
    ]


def chosen_alone(names: Sequence[str], subject: Subject) -> dict[int, str]:
    """Place -> name of the parameters that the user wants to see one by one (``layers=``)."""
    patterns = [re.compile(text) for text in subject.extras.get("layers") or ()]
    return {
        place: name
        for place, name in enumerate(names)
        if any(pattern.search(name) for pattern in patterns)
    }


def by_group(parameters: Iterable[NamedParameter]) -> dict[str, list[NamedParameter]]:
    """Measurable parameters, by group."""
    found: dict[str, list[NamedParameter]] = {}
    for parameter in measurable(parameters):
        found.setdefault(parameter.group, []).append(parameter)
    return found
