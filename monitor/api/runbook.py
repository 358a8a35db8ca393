"""Run-books as a page: the few Markdown forms they use, as plain blocks a template can escape."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from monitor.errors import NotFound

BlockKind = Literal["heading", "subheading", "text", "list", "code", "table"]
_INLINE = re.compile(r"(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*|\[[^\]]+\]\([^)]+\))")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line: plain text, code, bold or stressed. Links keep their text only."""

    kind: Literal["text", "code", "bold", "stress"]
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """One block. ``lines`` are lines of spans: one for text, one per item, row or code line.

    The cells of a table row are separated by a text span holding a tab.
    """

    kind: BlockKind
    lines: tuple[tuple[Span, ...], ...]


@dataclass(frozen=True, slots=True)
class Runbook:
    """A run-book: its first heading and everything below it."""

    title: str
    blocks: tuple[Block, ...] = field(default=())


def spans(line: str) -> tuple[Span, ...]:
    """Split a line at code, bold and links.

    >>> spans("see `x`")
    (Span(kind='text', text='see '), Span(kind='code', text='x'))
    """
    found: list[Span] = []
    for piece in _INLINE.split(line):
        if piece.startswith("`"):
            found.append(Span("code", piece[1:-1]))
        elif piece.startswith("**"):
            found.append(Span("bold", piece[2:-2]))
        elif piece.startswith("*") and len(piece) > 2:
            found.append(Span("stress", piece[1:-1]))
        elif piece.startswith("[") and piece.endswith(")"):
            found.append(Span("text", piece[1 : piece.index("]")]))
        elif piece:
            found.append(Span("text", piece))
    return tuple(found)


def parse_runbook(markdown: str) -> Runbook:
    """Read headings, paragraphs, lists, fenced code and tables; anything else is text."""
    title, blocks = "Run-book", []
    for chunk in _chunks(markdown):
        if chunk[0].startswith("# "):
            title = chunk[0][2:].strip().replace("`", "")
            chunk = chunk[1:]
        if chunk:
            blocks.append(_block(chunk))
    return Runbook(title, tuple(blocks))


def read_runbook(path: Path) -> Runbook:
    """The run-book at ``path``.

    Raises:
        NotFound: there is no such file.
    """
    try:
        return parse_runbook(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"There is no run-book named {path.stem!r}.") from None


def _chunks(markdown: str) -> list[list[str]]:
    """Lines that belong together: fenced code whole, everything else up to an empty line."""
    chunks: list[list[str]] = [[]]
    fenced = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            fenced = not fenced
            chunks.append([line]) if fenced else chunks.append([])
        elif fenced:
            chunks[-1].append(line)
        elif not line.strip():
            chunks.append([])
        elif line.startswith("#"):
            chunks.extend([[line], []])
        else:
            chunks[-1].append(line)
    return [chunk for chunk in chunks if chunk]


def _block(chunk: list[str]) -> Block:
    first = chunk[0]
    if first.startswith("```"):
        return Block("code", tuple((Span("code", line),) for line in chunk[1:]))
    if first.startswith("## "):
        return Block("heading", (spans(first[3:].strip()),))
    if first.startswith("#"):
        return Block("subheading", (spans(first.lstrip("# ").strip()),))
    if first.startswith("|"):
        return Block("table", tuple(_row(line) for line in chunk if not set(line) <= set("|-: ")))
    if re.match(r"([-*]|\d+\.) ", first):
        return Block("list", tuple(spans(item) for item in _items(chunk)))
    return Block("text", (spans(" ".join(line.strip() for line in chunk)),))


def _row(line: str) -> tuple[Span, ...]:
    cells = [spans(cell.strip()) for cell in line.strip().strip("|").split("|")]
    row: list[Span] = []
    for number, cell in enumerate(cells):
        row.extend([Span("text", "\t")] if number else [])
        row.extend(cell)
    return tuple(row)


def _items(chunk: list[str]) -> list[str]:
    items: list[str] = []
    for line in chunk:
        mark = re.match(r"\s*([-*]|\d+\.) ", line)
        if mark or not items:
            items.append(line[mark.end() :] if mark else line)
        else:
            items[-1] += " " + line.strip()
    return items
