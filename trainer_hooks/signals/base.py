"""What a signal is: it says what it measures, and measures when it is told to.

The schedule decides *when*, a signal knows only *how*. Whatever a signal returns stays on the
device: the watch packs all scalars of one due step into one tensor and brings it to the host one
due step later, so that nothing in a training loop ever waits for a measurement. A signal must not
change what it looks at: no gradient, no random number, no mode, no parameter. It may raise: the
watch counts that, and switches the signal off after three failures in a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.wire import SeriesSpec

if TYPE_CHECKING:
    import torch

    Measured = Mapping[str, "torch.Tensor | float"]
    """Series key -> 0-dim device tensor, or a float that never was on a device."""


UNDEFINED = -1.0
"""Of a quantity that is never negative: it has no value here (0 / 0), and none is told."""


@dataclass(frozen=True, slots=True)
class NamedParameter:
    """A trainable or frozen parameter, or a slice of one, under its clean name."""

    name: str
    group: str
    whole: torch.Tensor
    owned: bool = True
    """Whether an optimizer has it (where optimizers are known)."""
    cut: tuple[int, int, int] | None = None
    """Dimension, first place and length, where only that slice is meant."""

    @property
    def tensor(self) -> torch.Tensor:
        """The parameter, or a view of the slice as it is now."""
        return self.whole if self.cut is None else self.whole.detach().narrow(*self.cut)

    @property
    def grad(self) -> torch.Tensor | None:
        """Its gradient, or that of the slice."""
        grad = self.whole.grad
        return grad if grad is None or self.cut is None else grad.narrow(*self.cut)

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        return self.whole.requires_grad


@dataclass(slots=True)
class Subject:
    """What is watched: the model, its optimizers, and its parameters sorted into groups."""

    model: Any
    optimizers: Sequence[Any]
    parameters: Sequence[NamedParameter]
    extras: dict[str, Any] = field(default_factory=dict)
    """What the user gave beyond: the probe under ``probe``, autocast settings, and so on."""
    world: int = 1
    """Processes whose parts have to be added up; 1 where every process has the whole model."""


class Signal(ABC):
    """Base of all signals.

    Class attributes:
        name: as in the table of ``signals/__init__.py``.
        cadence: the name of the interval it follows: ``step``, ``weights``, ``probe``.
    """

    name: ClassVar[str]
    cadence: ClassVar[str] = "weights"

    @abstractmethod
    def __init__(self, subject: Subject) -> None:
        """Look the subject over once; raise ``AsleepError`` if there is nothing to measure."""

    @abstractmethod
    def specs(self) -> list[SeriesSpec]:
        """The series this signal will fill."""

    def before_update(self, step: int) -> None:  # noqa: B027 - optional by design
        """Called right before the optimizer's step, on due steps only."""

    def after_update(self, step: int) -> None:  # noqa: B027 - optional by design
        """Called right after the optimizer's step, on due steps only."""

    @abstractmethod
    def measure(self, step: int) -> Measured:
        """Called from ``Watch.step`` on due steps; keys as in ``specs``, absent where unknown."""

    def skipped(self, step: int) -> Measured:
        """The same where the optimizer made no step, as mixed precision does on overflow."""
        return self.measure(step)

    def read(self, cells: dict[str, Any]) -> list[SeriesSpec]:
        """A row's values are on the host: take out what is no series; specs that are new."""
        return []

    def notice(self) -> str | None:
        """Something about the loop that the run should be told, asked for after two steps."""
        return None


class SummedSignal(Signal):
    """A signal made of sums over scalars, which processes with a part each can add up.

    All sums of a due step travel in one collective, so a signal never starts one itself.

    Attributes:
        width: how many sums there are, the same on every process.
    """

    width: int

    @abstractmethod
    def sums(self, step: int) -> torch.Tensor:
        """float64 [width]: this process's share of every sum."""

    @abstractmethod
    def conclude(self, sums: torch.Tensor) -> Measured:
        """The values, from sums over all processes."""

    def measure(self, step: int) -> Measured:
        return self.conclude(self.sums(step))


class AsleepError(Exception):
    """A signal has nothing to measure: ``missing`` says what, ``wake`` is the line that helps."""

    def __init__(self, missing: str, wake: str) -> None:
        super().__init__(missing)
        self.missing = missing
        self.wake = wake
