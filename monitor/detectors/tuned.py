"""A detector with other parameters than its own.

Parameters are the fields of the frozen ``Params`` a detector's ``params`` argument is annotated
with; those of parts within it are named with a dot (``heat.z``). Values are given as text, as they
are typed: a number, ``true`` or ``false``, several with commas between them.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping

from monitor.detectors.base import Detector, RunFacts

Params = typing.Any
"""An instance of some detector's frozen ``Params``."""

_WORDS = {"true": True, "false": False}


class WrongParameter(ValueError):
    """There is no such parameter, or it cannot have this value; the text says which."""


def default_params(cls: type[Detector]) -> Params | None:
    """The detector's own parameters; None if it has none."""
    hint = typing.get_type_hints(cls.__init__).get("params")
    options = typing.get_args(hint) or (hint,)
    found = next((option for option in options if dataclasses.is_dataclass(option)), None)
    return found() if isinstance(found, type) else None


def parameters(cls: type[Detector]) -> dict[str, object]:
    """All that can be changed, with the values they have by themselves."""
    params = default_params(cls)
    return dict(_flat(params)) if params is not None else {}


def as_text(value: object) -> str:
    """A value as it is typed; ``tuned`` understands it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def tuned(cls: type[Detector], changes: Mapping[str, str]) -> type[Detector]:
    """The detector with these parameters changed; itself where nothing is.

    Raises:
        WrongParameter: it has no such parameter, or the text is no value of its kind.
    """
    if not changes:
        return cls
    params = default_params(cls)
    for name, text in changes.items():
        if params is None:
            raise WrongParameter(f"{cls.name} has no parameters.")
        params = _replaced(params, name.split("."), text, name)

    def begin(self: Detector, facts: RunFacts, _: Params = None) -> None:
        cls.__init__(self, facts, params)

    return type(cls.__name__, (cls,), {"__init__": begin})


def _flat(params: Params, before: str = "") -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value, f"{before}{field.name}.")
        else:
            yield before + field.name, value


def _replaced(params: Params, path: list[str], text: str, name: str) -> Params:
    first, rest = path[0], path[1:]
    if first not in {field.name for field in dataclasses.fields(params)}:
        raise WrongParameter(f"There is no parameter {name}.")
    held = getattr(params, first)
    if dataclasses.is_dataclass(held) != bool(rest):
        raise WrongParameter(f"There is no parameter {name}.")
    new = _replaced(held, rest, text, name) if rest else _like(held, text.strip(), name)
    return dataclasses.replace(params, **{first: new})


def _like(value: object, text: str, name: str) -> object:
    """``text`` as a value of the kind of ``value``."""
    if isinstance(value, tuple):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts or not value:
            raise WrongParameter(f"{name} cannot be {text!r}; now it is {as_text(value)}.")
        return tuple(_like(value[0], part, name) for part in parts)
    try:
        if isinstance(value, bool):
            return _WORDS[text.lower()]
        if isinstance(value, int):
            return _not_below(int(text), 1 if value > 0 else None)
        if isinstance(value, float):
            return _not_below(float(text), 0.0 if value >= 0.0 else None)
    except (ValueError, KeyError):
        raise WrongParameter(f"{name} cannot be {text!r}; now it is {as_text(value)}.") from None
    return text


def _not_below(number: float, least: float | None) -> float:
    """Counts stay counts, and what is a size has no sign."""
    if not math.isfinite(number) or (least is not None and number < least):
        raise ValueError(number)
    return number
