"""The learning rate that each optimizer group really applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.signals.base import AsleepError, Signal, Subject
from trainer_hooks.wire import SeriesSpec, series_key

if TYPE_CHECKING:
    from trainer_hooks.signals.base import Measured


class LearningRate(Signal):
    """Read before the optimizer's step: a scheduler may have moved on when the step ends."""

    name: ClassVar[str] = "learning_rate"
    cadence: ClassVar[str] = "step"

    def __init__(self, subject: Subject) -> None:
        self._optimizers = subject.optimizers
        self._read: dict[str, Any] = {}
        if not any(True for _ in self._named_groups()):
            raise AsleepError("an optimizer with a learning rate", "watch(model, optimizer)")

    def specs(self) -> list[SeriesSpec]:
        return [
            SeriesSpec(
                key=series_key("lr", name),
                name="lr",
                group=name,
                family="learning_rate",
                help="learning rate applied by the optimizer",
            )
            for name, _ in self._named_groups()
        ]

    def before_update(self, step: int) -> None:
        self._read = self._now()

    def measure(self, step: int) -> Measured:
        read, self._read = self._read or self._now(), {}
        return read

    def _now(self) -> dict[str, Any]:
        return {series_key("lr", name): _copy(g["lr"]) for name, g in self._named_groups()}

    def _named_groups(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Groups with a learning rate under their own names, or by number; each name once."""
        seen: dict[str, int] = {}
        for index, optimizer in enumerate(self._optimizers):
            prefix = f"optimizer{index}." if len(self._optimizers) > 1 else ""
            for number, group in enumerate(optimizer.param_groups):
                if "lr" not in group:
                    continue
                name = f"{prefix}{group.get('name') or f'group{number}'}"
                seen[name] = seen.get(name, 0) + 1
                yield name if seen[name] == 1 else f"{name}#{seen[name]}", group


def _copy(lr: Any) -> Any:
    """A tensor is copied where it is: the optimizer's own goes on changing."""
    return lr.detach().clone() if hasattr(lr, "detach") else float(lr)
