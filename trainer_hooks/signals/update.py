"""What one optimizer step does to the weights: size, rotation, and how many scalars it moves.

The weights are copied before the step and compared after it. Copies are bounded: where not all
parameters fit into ``MAX_COPY_BYTES``, portions are measured in turn, one on each due step, and a
group's values are those of its parameters in that portion. A single tensor beyond the bound is
measured on the leading rows that fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from trainer_hooks.signals.base import AsleepError, NamedParameter, Signal, Subject
from trainer_hooks.signals.change import measure_change
from trainer_hooks.signals.groups import TOTAL, by_group
from trainer_hooks.signals.norms import joint
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured

MAX_COPY_BYTES = 96 * 1024 * 1024
"""Of float32 copies; half-precision weights need one tensor's float32 copy more at a time."""

_SPECS = {
    "update_ratio": ("rotation", "", "norm of one step's change over the norm of the weights"),
    "effective_lr": ("rotation", "rad/step", "median angle a matrix turns by in one step"),
    "effective_lr_max": ("rotation", "rad/step", "largest angle a matrix turns by in one step"),
    "update_coverage": ("weights", "", "share of the group's scalars that one step changed"),
}


class Update(Signal):
    """``update_ratio``, ``effective_lr`` (matrices only) and ``update_coverage`` by group."""

    name: ClassVar[str] = "update"

    def __init__(self, subject: Subject) -> None:
        trainable = [p for p in subject.parameters if p.tensor.requires_grad]
        self._groups = by_group(trainable)
        if not self._groups:
            raise AsleepError("a parameter that requires a gradient", "watch(model, optimizer)")
        ordered = [p for group in self._groups.values() for p in group]
        self._portions = _portions(ordered)
        self._turn = 0
        self._held: list[tuple[NamedParameter, Tensor]] = []
        self._kept: dict[str, Tensor] = {}
        self._found: dict[str, Tensor | float] = {}

    def specs(self) -> list[SeriesSpec]:
        found = []
        for name, (family, unit, text) in _SPECS.items():
            for group in (*self._groups, TOTAL):
                if not self._fills(name, group):
                    continue
                key = series_key(name, group)
                found.append(
                    SeriesSpec(key=key, name=name, group=group, unit=unit, family=family, help=text)
                )
        return found

    def _fills(self, name: str, group: str) -> bool:
        if group == TOTAL:
            whole = len(self._portions) == 1
            return whole and name in ("update_ratio", "update_coverage")
        if name.startswith("effective_lr"):
            return any(p.tensor.ndim >= 2 for p in self._groups[group])
        return True

    def before_update(self, step: int) -> None:
        self._found = {}
        portion = self._portions[self._turn % len(self._portions)]
        self._held = [(p, self._copy(p)) for p in portion]

    def _copy(self, parameter: NamedParameter) -> Tensor:
        """The weights now, at least float32 (halves cannot hold their own change), contiguous.

        On a CPU the memory is kept for the next time where all of it keeps to the bound: fresh
        pages cost more than the copy.
        """
        tensor = _leading(parameter.tensor.detach())
        wide = torch.promote_types(tensor.dtype, torch.float32)
        kept = self._kept.get(parameter.name)
        if kept is None or kept.shape != tensor.shape or kept.device != tensor.device:
            kept = torch.empty(tensor.shape, dtype=wide, device=tensor.device)
        if tensor.device.type == "cpu" and len(self._portions) == 1:
            self._kept[parameter.name] = kept
        return kept.copy_(tensor)

    def after_update(self, step: int) -> None:
        held, self._held = self._held, []
        if not held:
            return
        self._turn += 1
        groups: dict[str, list[tuple[NamedParameter, Tensor]]] = {}
        for parameter, copy in held:
            groups.setdefault(parameter.group, []).append((parameter, copy))
        sums = [self._group(group, members) for group, members in groups.items()]
        if len(self._portions) == 1:
            self._total(torch.stack([row.to(sums[0].device) for row in sums]))

    def _group(self, group: str, members: list[tuple[NamedParameter, Tensor]]) -> Tensor:
        """Fill in one group's values; give norm before, norm of the change, scalars changed."""
        count = sum(copy.numel() for _, copy in members)
        change = measure_change([c for _, c in members], [_leading(p.tensor) for p, _ in members])
        angles = [change.angle[i] for i, (p, _) in enumerate(members) if p.tensor.ndim >= 2]
        if angles:
            stacked = torch.stack(angles)
            self._found[series_key("effective_lr", group)] = stacked.median()
            self._found[series_key("effective_lr_max", group)] = stacked.max()
        changed = change.changed.sum()
        row = torch.stack([joint(change.before_norm), joint(change.change_norm), changed])
        self._found[series_key("update_ratio", group)] = _ratio(row[1], row[0])
        self._found[series_key("update_coverage", group)] = row[2] / count
        return row

    def _total(self, rows: Tensor) -> None:
        """From the groups' rows [group, (norm before, norm of change, changed)]."""
        count = sum(_leading(p.tensor).numel() for p in self._portions[0])
        ratio = _ratio(joint(rows[:, 1]), joint(rows[:, 0]))
        self._found[series_key("update_ratio", TOTAL)] = ratio
        self._found[series_key("update_coverage", TOTAL)] = rows[:, 2].sum() / count

    def measure(self, step: int) -> Measured:
        found, self._found = self._found, {}
        return found


def _ratio(change: Tensor, before: Tensor) -> Tensor:
    """|dW| / |W|; 0 for weights that are all 0, whose ratio says nothing."""
    return torch.where(before == 0, torch.zeros_like(change), change / before)


def _leading(tensor: Tensor) -> Tensor:
    """The tensor, or the leading rows of it whose copy keeps to the bound."""
    size = _copy_bytes(tensor)
    if size <= MAX_COPY_BYTES or tensor.ndim == 0:
        return tensor
    rows = max(1, tensor.shape[0] * MAX_COPY_BYTES // size)
    return tensor[:rows]


def _copy_bytes(tensor: Tensor) -> int:
    return tensor.numel() * max(4, tensor.element_size())


def _portions(parameters: Sequence[NamedParameter]) -> list[list[NamedParameter]]:
    """Neighbours together, each portion's copies within the bound."""
    portions: list[list[NamedParameter]] = [[]]
    size = 0
    for parameter in parameters:
        added = min(MAX_COPY_BYTES, _copy_bytes(parameter.tensor))
        if portions[-1] and size + added > MAX_COPY_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(parameter)
        size += added
    return portions
