"""What one optimizer step does to the weights: size, rotation, and how many scalars it moves.

The weights are copied before the step and compared after it. Copies are bounded: where not all
parameters fit into ``MAX_COPY_BYTES``, portions are measured in turn, one on each due step, and a
group's values are those of its parameters in that portion. A single tensor beyond the bound is
measured on the leading rows that fit. Of a tensor in shards every process compares its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from trainer_hooks.signals.base import (
    UNDEFINED,
    AsleepError,
    NamedParameter,
    Subject,
    SummedSignal,
)
from trainer_hooks.signals.change import Change, change_of_sums, measure_change, measure_part
from trainer_hooks.signals.groups import TOTAL, chosen_alone, measurable
from trainer_hooks.signals.norms import Grouping, Shares
from trainer_hooks.signals.shards import is_sharded, local, part_size
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured

MAX_COPY_BYTES = 96 * 1024 * 1024
"""Of float32 copies; half-precision weights need one tensor's float32 copy more at a time."""

_COLUMNS = 4
"""Of a whole tensor: norms squared before and of the change, its angle, scalars changed.
Of a tensor in shards: the sums of ``measure_part``."""

WORST = "effective_lr_worst"
"""Not a series: the number of the most turned matrix, which becomes a name once it is here."""

_SPECS = {
    "update_ratio": ("rotation", "", "norm of one step's change over the norm of the weights"),
    "effective_lr": ("rotation", "rad/step", "median angle a matrix turns by in one step"),
    "effective_lr_max": ("rotation", "rad/step", "largest angle a matrix turns by in one step"),
    "update_coverage": ("weights", "", "share of the group's scalars that one step changed"),
}


class _Portion:
    """Parameters that are measured together, with all that does not change from step to step."""

    def __init__(self, parameters: Sequence[NamedParameter], subject: Subject) -> None:
        self.parameters = list(parameters)
        self.groups = Grouping([p.group for p in parameters])
        self.owned = Grouping([p.group if p.owned else "" for p in parameters])
        self.shares = Shares([p.tensor for p in parameters], subject.world)
        self.sharded = [i for i, p in enumerate(parameters) if is_sharded(p.tensor)]
        self.alone = chosen_alone([p.name for p in parameters], subject)
        self.matrices = {
            group: [
                i for i, p in enumerate(parameters)
                if p.group == group and p.owned and p.tensor.ndim >= 2
            ]
            for group in self.groups.names
        }  # fmt: skip
        sizes = [_looked_at(p.tensor) for p in parameters]
        self.counts = [
            sum(n for n, place in zip(sizes, self.groups.places, strict=True) if place == g)
            for g in range(len(self.groups.names))
        ]


class Update(SummedSignal):
    """``update_ratio``, ``effective_lr`` (matrices only) and ``update_coverage`` by group.

    Ratio and rotation are those of what the optimizers have; the coverage counts everything that
    is trainable, so that a layer no optimizer knows shows.
    """

    name: ClassVar[str] = "update"

    def __init__(self, subject: Subject) -> None:
        trainable = [p for p in measurable(subject.parameters) if p.requires_grad]
        if not trainable:
            raise AsleepError("a parameter that requires a gradient", "watch(model, optimizer)")
        by_group = sorted(trainable, key=lambda p: [q.group for q in trainable].index(p.group))
        self._portions = [_Portion(part, subject) for part in _portions(by_group)]
        self._matrices = [
            portion.parameters[place].name
            for portion in self._portions
            for places in portion.matrices.values()
            for place in places
        ]
        self._worst: dict[str, str] = {}
        self._turn = 0
        self._held: list[Tensor] = []
        self._kept: dict[str, Tensor] = {}
        self._sums: Tensor | None = None
        self._world = subject.world
        self._extras = subject.extras

    @property
    def width(self) -> int:  # type: ignore[override]
        """Of the portion whose turn it is."""
        return _COLUMNS * len(self._portion.parameters)

    @property
    def _portion(self) -> _Portion:
        return self._portions[self._turn % len(self._portions)]

    @property
    def _first_matrix(self) -> int:
        """Number of the first matrix of the portion whose turn it is, among all of them."""
        before = self._portions[: self._turn % len(self._portions)]
        return sum(len(places) for portion in before for places in portion.matrices.values())

    def specs(self) -> list[SeriesSpec]:
        names: dict[str, dict[str, None]] = {name: {} for name in _SPECS}
        for portion in self._portions:
            for group in portion.groups.names:
                names["update_coverage"][group] = None
                if group in portion.owned.names:
                    names["update_ratio"][group] = None
                if portion.matrices[group]:
                    names["effective_lr"][group] = names["effective_lr_max"][group] = None
            for place, name in portion.alone.items():
                names["update_ratio"][name] = None
                if portion.parameters[place].tensor.ndim >= 2:
                    names["effective_lr"][name] = None
        if len(self._portions) == 1:
            names["update_ratio"][TOTAL] = names["update_coverage"][TOTAL] = None
        return [_spec(name, group) for name, groups in names.items() for group in groups]

    def before_update(self, step: int) -> None:
        self._sums = None
        self._held = [self._copy(p) for p in self._portion.parameters]

    def _copy(self, parameter: NamedParameter) -> Tensor:
        """The weights now, at least float32 (halves cannot hold their own change), contiguous.

        On a CPU the memory is kept for the next time where all of it keeps to the bound: fresh
        pages cost more than the copy.
        """
        tensor = _leading(local(parameter.tensor.detach()))
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
        portion = self._portion
        after = [_leading(local(p.tensor.detach())) for p in portion.parameters]
        whole = [i for i in range(len(held)) if i not in set(portion.sharded)]
        rows: list[Tensor | None] = [None] * len(held)
        if whole:
            change = measure_change([held[i] for i in whole], [after[i] for i in whole])
            self._share_norms(step, [portion.parameters[i] for i in whole], after, change)
            columns = (change.before_norm**2, change.change_norm**2, change.angle, change.changed)
            for place, row in zip(whole, torch.stack(columns, 1).unbind(), strict=True):
                rows[place] = row
        for place in portion.sharded:
            rows[place] = measure_part(held[place], after[place])
        first = next(row for row in rows if row is not None)
        found = torch.stack([row.to(first.device) for row in rows if row is not None])
        self._sums = portion.shares.of(found)

    def _share_norms(
        self, step: int, members: Sequence[NamedParameter], after: Sequence[Tensor], change: Change
    ) -> None:
        """The norms of the weights were found by the way: nobody needs to take them again."""
        if change.after_norm is None or self._world > 1 or len(self._portions) > 1:
            return
        if all(a.numel() == p.tensor.numel() for a, p in zip(after, members, strict=True)):
            places = {p.name: place for place, p in enumerate(members)}
            self._extras["norms_after"] = (step, places, change.after_norm)

    def sums(self, step: int) -> Tensor:
        sums, self._sums = self._sums, None
        if sums is None:
            device = local(self._portion.parameters[0].tensor).device
            return torch.zeros(self.width, dtype=torch.float64, device=device)
        return sums.reshape(-1)

    def measure(self, step: int) -> Measured:
        return {} if self._sums is None else self.conclude(self.sums(step))

    def skipped(self, step: int) -> Measured:
        """Nothing moved: that is no absence, but a change of 0 and an angle of 0."""
        device = local(self._portion.parameters[0].tensor).device
        nothing = torch.zeros(self.width, dtype=torch.float64, device=device).view(-1, _COLUMNS)
        nothing[:, 0] = 1.0  # any norm: the ratio is 0 of it
        nothing[:, 2] = 1.0 if self._portion.sharded else 0.0
        found = self.conclude(nothing.reshape(-1))
        return {key: value for key, value in found.items() if not key.startswith(WORST)}

    def read(self, cells: dict[str, Any]) -> list[SeriesSpec]:
        """Which matrix turned most, told with the series where it is another one than before."""
        changed = []
        for key in [key for key in cells if key.startswith(f"{WORST}/")]:
            name = self._matrices[int(cells.pop(key))]
            group = key.removeprefix(f"{WORST}/")
            if self._worst.get(group) == name:
                continue
            self._worst[group] = name
            spec = _spec("effective_lr_max", group)
            changed.append(replace(spec, help=f"{spec.help}: {name}"))
        return changed

    def conclude(self, sums: Tensor) -> Measured:
        portion, first = self._portion, self._first_matrix
        self._turn += 1
        change = _change(sums.view(-1, _COLUMNS), portion.sharded)
        squares = torch.stack([change.before_norm**2, change.change_norm**2], 1)
        ratios = _ratio(portion.owned.sums(squares))
        changed = portion.groups.sums(change.changed).unbind()
        found: dict[str, Tensor | float] = {}
        for group, ratio in zip(portion.owned.names, ratios.unbind(), strict=True):
            found[series_key("update_ratio", group)] = ratio
        for group, count, some in zip(portion.groups.names, portion.counts, changed, strict=True):
            found[series_key("update_coverage", group)] = some / count
            if portion.matrices[group]:
                angles = torch.stack([change.angle[i] for i in portion.matrices[group]])
                most = angles.max(0)
                found[series_key("effective_lr", group)] = angles.median()
                found[series_key("effective_lr_max", group)] = most.values
                found[series_key(WORST, group)] = most.indices.double() + first
                first += len(angles)
        if len(self._portions) == 1:
            total = portion.owned.sums(squares).sum(0, keepdim=True)
            found[series_key("update_ratio", TOTAL)] = _ratio(total)[0]
            found[series_key("update_coverage", TOTAL)] = change.changed.sum() / sum(portion.counts)
        return found | self._alone(portion, change, squares)

    def _alone(self, portion: _Portion, change: Change, squares: Tensor) -> dict[str, Tensor]:
        """Single parameters, where they were asked for."""
        if not portion.alone:
            return {}
        ratios = _ratio(squares)
        found = {series_key("update_ratio", n): ratios[i] for i, n in portion.alone.items()}
        return found | {
            series_key("effective_lr", name): change.angle[place]
            for place, name in portion.alone.items()
            if portion.parameters[place].tensor.ndim >= 2
        }


def _spec(name: str, group: str) -> SeriesSpec:
    family, unit, text = _SPECS[name]
    key = series_key(name, group)
    return SeriesSpec(key=key, name=name, group=group, unit=unit, family=family, help=text)


def _change(rows: Tensor, sharded: Sequence[int]) -> Change:
    """Rows [tensors, 4], summed over processes, as changes of whole tensors."""
    if not sharded:
        before2, change2, angle, changed = rows.unbind(1)
        return Change(before2.sqrt(), change2.sqrt(), angle, changed)
    parts = change_of_sums(rows)
    if len(sharded) == len(rows):
        return parts
    whole = _change(rows, ())
    chosen = [i in set(sharded) for i in range(len(rows))]
    return Change(*(_choose(chosen, getattr(parts, f), getattr(whole, f)) for f in _FIELDS))


_FIELDS = ("before_norm", "change_norm", "angle", "changed")


def _choose(chosen: Sequence[bool], one: Tensor, other: Tensor) -> Tensor:
    pairs = zip(chosen, one.unbind(), other.unbind(), strict=True)
    return torch.stack([a if first else b for first, a, b in pairs])


def _ratio(squares: Tensor) -> Tensor:
    """|dW| / |W| from [n, (|W|^2, |dW|^2)]; undefined for weights that are all 0."""
    before, change = squares.sqrt().unbind(1)
    return torch.where(before == 0, torch.full_like(before, UNDEFINED), change / before)


def _leading(tensor: Tensor) -> Tensor:
    """The tensor, or the leading rows of it whose copy keeps to the bound."""
    size = _copy_bytes(tensor)
    if size <= MAX_COPY_BYTES or tensor.ndim == 0:
        return tensor
    rows = max(1, tensor.shape[0] * MAX_COPY_BYTES // size)
    return tensor[:rows]


def _looked_at(tensor: Tensor) -> int:
    """Scalars of the whole tensor that are compared, on all processes together."""
    if is_sharded(tensor):
        return tensor.numel()
    return _leading(tensor).numel()


def _copy_bytes(tensor: Tensor) -> int:
    return tensor.numel() * max(4, tensor.element_size())


def _portions(parameters: Sequence[NamedParameter]) -> list[list[NamedParameter]]:
    """Neighbours together, each portion's copies within the bound."""
    portions: list[list[NamedParameter]] = [[]]
    size = 0
    for parameter in parameters:
        added = min(
            MAX_COPY_BYTES, part_size(parameter.tensor) * max(4, parameter.tensor.element_size())
        )
        if portions[-1] and size + added > MAX_COPY_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(parameter)
        size += added
    return portions
