"""A watch that does nothing: on ranks other than the first, in copies, and where pickled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class InertWatch:
    """Takes every call of ``Watch`` and does nothing."""

    run: str = ""

    def data(self, loader: Iterable[T], **_options: Any) -> Iterable[T]:
        """The loader itself."""
        return loader

    def step(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def micro(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def log(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def log_heldout(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def log_eval(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def event(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def sample_answers(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    @contextmanager
    def phase(self, *_args: Any, **_values: Any) -> Iterator[None]:
        """Runs what is inside."""
        yield

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self, *_args: Any, **_values: Any) -> None:
        """Nothing."""

    def __enter__(self) -> InertWatch:
        return self

    def __exit__(self, *_error: object) -> None:
        return None
