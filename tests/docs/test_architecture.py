"""``docs/architecture.md`` against the house: its files, its names, its transition table."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
MARKS = ("<!-- table: begin -->\n", "<!-- table: end -->\n")


def names_in(path: Path) -> set[str]:
    """Functions, classes and methods (``Class.method``) that a Python file defines."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inside = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{n.name}" for n in inside}
    return found


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`([\w/]+\.(?:py|js))(?=::|`)", TEXT))))
def test_each_file_it_names_exists(place: str) -> None:
    assert (ROOT / place).is_file()


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`([\w/]+\.py::[\w.]+)`", TEXT))))
def test_each_name_it_gives_is_defined_there(place: str) -> None:
    path, _, name = place.partition("::")
    assert name in names_in(ROOT / path)


def transition_table() -> str:
    """The alert's transition table as Markdown: a row a state, a column an input."""
    from monitor.domain.alert import TRANSITIONS

    states = list(dict.fromkeys(state for state, _ in TRANSITIONS))
    inputs = list(dict.fromkeys(given for _, given in TRANSITIONS))
    lines = ["| | " + " | ".join(inputs) + " |", "| --- " * (len(inputs) + 1) + "|"]
    for state in states:
        cells = [TRANSITIONS[state, given] for given in inputs]
        texts = [
            ("-" if c.to == state else c.to) + (f" (full: {c.full})" if c.full else "")
            for c in cells
        ]
        lines.append(f"| {state} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def test_its_transition_table_is_the_one_in_force() -> None:
    before, _, rest = TEXT.partition(MARKS[0])
    shown, _, after = rest.partition(MARKS[1])
    if os.environ.get("WATCHKEEPER_WRITE_GOLDEN"):
        PAGE.write_text(before + MARKS[0] + transition_table() + MARKS[1] + after, encoding="utf-8")
        return
    assert shown == transition_table()
