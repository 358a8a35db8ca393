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


@dataclass(frozen=True, slots=True)
class NamedParameter:
    """A trainable or frozen parameter under its clean name (wrapper prefixes stripped)."""

    name: str
    group: str
    tensor: torch.Tensor


@dataclass(slots=True)
class Subject:
    """What is watched: the model, its optimizers, and its parameters sorted into groups."""

    model: Any
    optimizers: Sequence[Any]
    parameters: Sequence[NamedParameter]
    extras: dict[str, Any] = field(default_factory=dict)
    """What the user gave beyond: the probe under ``probe``, autocast settings, and so on."""


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


class AsleepError(Exception):
    """A signal has nothing to measure: ``missing`` says what, ``wake`` is the line that helps."""

    def __init__(self, missing: str, wake: str) -> None:
        super().__init__(missing)
        self.missing = missing
        self.wake = wake
