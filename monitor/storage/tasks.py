"""A function waiting for its transaction."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from monitor.storage.base import UnitOfWork


@dataclass(slots=True)
class Task:
    """The function, where its answer goes, and what came of it before the commit."""

    work: Callable[[UnitOfWork], Any]
    future: Future[Any] = field(default_factory=Future)
    result: Any = None
    error: BaseException | None = None
