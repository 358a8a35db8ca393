"""Questions about an answer that run nothing of it: does it match, parse, close its brackets?"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

MAX_CHECKED = 20_000
"""Characters of an answer that are looked at: patterns and parsers are not linear in all texts."""

CHECK_NAMES = ("python", "brackets", "pattern")

_OPENED = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Checks:
    """What is asked of the answers to one prompt.

    ``pattern`` is a regular expression that has to be found in the answer. ``python`` and
    ``brackets`` are asked of prompt and answer together where ``with_prompt`` is set, as a prompt
    may be the beginning of the code.

    Raises:
        ValueError: the pattern is no regular expression.
    """

    pattern: str | None = None
    python: bool = False
    brackets: bool = False
    with_prompt: bool = True

    def __post_init__(self) -> None:
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern {self.pattern!r}: {error}") from None

    def run(self, prompt: str, answer: str) -> dict[str, bool]:
        """Each check's name, and whether the answer passed it."""
        text = (prompt + answer if self.with_prompt else answer)[:MAX_CHECKED]
        found: dict[str, bool] = {}
        if self.python:
            found["python"] = parses_as_python(text)
        if self.brackets:
            found["brackets"] = closes_its_brackets(text)
        if self.pattern is not None:
            found["pattern"] = re.search(self.pattern, answer[:MAX_CHECKED]) is not None
        return found


def parses_as_python(text: str) -> bool:
    """Whether the text is syntactically Python. An answer that was cut at the length limit rarely
    is: its last, unfinished line is left out where that helps.
    """
    lines = _without_fence(text).splitlines()
    return any(_parses("\n".join(part)) for part in (lines, lines[:-1]) if part)


def _parses(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(code.strip())


def _without_fence(text: str) -> str:
    """The code of a fenced answer (```python ... ```), else all of it."""
    fenced = re.search(r"```[\w+-]*\n(.*?)(?:```|\Z)", text, re.DOTALL)
    return fenced.group(1) if fenced else text


def closes_its_brackets(text: str) -> bool:
    """Whether round, square and curly brackets close in order. Strings are not told apart."""
    waiting: list[str] = []
    for mark in text:
        if mark in "([{":
            waiting.append(mark)
        elif mark in _OPENED and (not waiting or waiting.pop() != _OPENED[mark]):
            return False
    return not waiting
