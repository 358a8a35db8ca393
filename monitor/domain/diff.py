"""A word diff that always ends: anchored on words that occur once, bounded in work, pure.

The method is patience diff: strip what both begin and end with, take the words that occur exactly
once on both sides, keep the longest run of them in the same order, and look between them. What lies
between two anchors is aligned in full only while the budget lasts; after that it is shown as
replaced, which is never wrong, only coarser.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

Change = Literal["same", "cut", "add"]
Piece = tuple[Change, str]

BUDGET = 200_000
"""Cells of alignment work spent on one diff (about 0.1 s)."""

LARGEST_GAP = 4_096
"""A gap of more cells than this is not aligned word by word."""

ROUGH_CHARS = 64 * 1024
"""Longer texts are compared line by line: what differs is right, only shown roughly."""

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORDS = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+|\s+|[^\w\s]")


JOINER = "\u200d"


def words(text: str) -> list[str]:
    """Words, single marks and stretches of space; joined they are the text again.

    What a reader sees as one character (a letter with its accents, a joined emoji, a flag) is never
    cut in two.
    """
    found: list[str] = _WORDS.findall(text)
    return found if text.isascii() else _glued(found)


def _glued(found: Sequence[str]) -> list[str]:
    """Pieces that belong to one character, put together; and the words they lie in."""
    glued: list[list[str]] = []
    for piece in found:
        if glued and _belongs(glued[-1], piece):
            glued[-1].append(piece)
        else:
            glued.append([piece])
    return ["".join(parts) for parts in glued]


def _belongs(parts: Sequence[str], piece: str) -> bool:
    last, first = parts[-1], piece[0]
    if _extends(first) or last[-1] == JOINER:
        return True
    if _is_flag_half(first):
        return len(parts) == 1 and _is_flag_half(last)
    return len(parts) > 1 and first.isalnum() and parts[0][0].isalnum() and _extends(last[-1])


def _extends(char: str) -> bool:
    """A combining mark, a variant, a skin tone or a joiner: it has no place of its own."""
    if char < "\u0300":
        return False
    return (
        char == JOINER
        or unicodedata.category(char)[0] == "M"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
    )


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def word_diff(left: str, right: str) -> list[Piece]:
    """What to cut from ``left`` and add to get ``right``, in reading order.

    All ``same`` and ``cut`` pieces join to ``left``, all ``same`` and ``add`` pieces to ``right``.
    """
    if left == right:
        return [("same", left)] if left else []
    if is_rough(left, right):
        return list(_joined(_line_diff(left, right)))
    differ = _Differ(words(left), words(right), BUDGET)
    return list(_joined(_smoothed(list(differ.run()))))


def is_rough(left: str, right: str) -> bool:
    """Whether two texts are so long that they are compared line by line."""
    return max(len(left), len(right)) > ROUGH_CHARS


def _line_diff(left: str, right: str) -> Iterator[Piece]:
    """What both begin and end with, cut at a space or line, and the lines between."""
    head = _shared(left, right)
    head = max(left.rfind(" ", 0, head), left.rfind("\n", 0, head)) + 1
    tail = _shared(left[head:][::-1], right[head:][::-1])
    ends = left[len(left) - tail :]
    first = min((at for at in (ends.find(" "), ends.find("\n")) if at >= 0), default=len(ends))
    tail -= first
    lines_l = left[head : len(left) - tail].splitlines(keepends=True)
    lines_r = right[head : len(right) - tail].splitlines(keepends=True)
    if head:
        yield "same", left[:head]
    yield from _Differ(lines_l, lines_r, BUDGET).run()
    if tail:
        yield "same", left[len(left) - tail :]


def _shared(left: str, right: str) -> int:
    """How many characters two texts begin with alike, by halves."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


Span = tuple[int, int, int, int]
"""``left[a:b]`` against ``right[c:d]``."""


@dataclass(slots=True)
class _Differ:
    left: list[str]
    right: list[str]
    budget: int

    def run(self) -> Iterator[Piece]:
        """Pieces in order; a stack of spans in place of recursion, so that depth has no limit."""
        stack: list[Span | Piece] = [(0, len(self.left), 0, len(self.right))]
        while stack:
            top = stack.pop()
            if len(top) == 2:
                yield top
            else:
                stack.extend(reversed(self._split(top)))

    def _split(self, span: Span) -> list[Span | Piece]:
        a, b, c, d = span
        head, tail = self._common(span)
        inner = (a + head, b - tail, c + head, d - tail)
        parts: list[Span | Piece] = [("same", word) for word in self.left[a : a + head]]
        parts.extend(self._inside(inner))
        parts.extend(("same", word) for word in self.left[b - tail : b])
        return parts

    def _common(self, span: Span) -> tuple[int, int]:
        a, b, c, d = span
        limit = min(b - a, d - c)
        head = 0
        while head < limit and self.left[a + head] == self.right[c + head]:
            head += 1
        tail = 0
        while tail < limit - head and self.left[b - 1 - tail] == self.right[d - 1 - tail]:
            tail += 1
        return head, tail

    def _inside(self, span: Span) -> list[Span | Piece]:
        a, b, c, d = span
        if a == b or c == d:
            return self._replaced(span)
        anchors = self._anchors(span)
        if anchors:
            return _between(span, anchors)
        return self._aligned(span)

    def _replaced(self, span: Span) -> list[Span | Piece]:
        a, b, c, d = span
        cut: list[Span | Piece] = [("cut", word) for word in self.left[a:b]]
        return cut + [("add", word) for word in self.right[c:d]]

    def _anchors(self, span: Span) -> list[tuple[int, int]]:
        a, b, c, d = span
        here = Counter(self.left[a:b])
        there = Counter(self.right[c:d])
        places = {w: j for j, w in enumerate(self.right[c:d], c) if there[w] == 1}
        pairs = [
            (i, places[w])
            for i, w in enumerate(self.left[a:b], a)
            if here[w] == 1 and w in places and not w.isspace()
        ]
        return _longest_rising(pairs)

    def _aligned(self, span: Span) -> list[Span | Piece]:
        a, b, c, d = span
        cells = (b - a) * (d - c)
        if cells > LARGEST_GAP or cells > self.budget:
            return self._replaced(span)
        self.budget -= cells
        matcher = SequenceMatcher(None, self.left[a:b], self.right[c:d], autojunk=False)
        parts: list[Span | Piece] = []
        for _, i, j, k, m in matcher.get_opcodes():
            same = self.left[a + i : a + j] == self.right[c + k : c + m]
            if same:
                parts.extend(("same", word) for word in self.left[a + i : a + j])
            else:
                parts.extend(self._replaced((a + i, a + j, c + k, c + m)))
        return parts


def _between(span: Span, anchors: Sequence[tuple[int, int]]) -> list[Span | Piece]:
    """The anchors as spans of one word, and the gaps round them."""
    a, b, c, d = span
    parts: list[Span | Piece] = []
    for i, j in anchors:
        parts.append((a, i, c, j))
        parts.append((i, i + 1, j, j + 1))
        a, c = i + 1, j + 1
    parts.append((a, b, c, d))
    return parts


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence whose second numbers rise (the first already do)."""
    tails: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        place = bisect_left(tails, j)
        before.append(last[place - 1] if place else -1)
        if place == len(tails):
            tails.append(j)
            last.append(index)
        else:
            tails[place] = j
            last[place] = index
    chain: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _smoothed(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """A space that stayed between two changes belongs to both: one change reads better than three.

    Within a changed stretch all that is cut comes before all that is added.
    """
    cut: list[str] = []
    add: list[str] = []
    for index, (change, text) in enumerate(pieces):
        if change == "cut":
            cut.append(text)
        elif change == "add":
            add.append(text)
        elif _is_bridge(pieces, index):
            cut.append(text)
            add.append(text)
        else:
            yield from _change(cut, add)
            yield change, text
    yield from _change(cut, add)


def _is_bridge(pieces: Sequence[Piece], index: int) -> bool:
    inner = 0 < index < len(pieces) - 1
    return (
        inner
        and pieces[index][1].isspace()
        and pieces[index - 1][0] != "same"
        and pieces[index + 1][0] != "same"
    )


def _change(cut: list[str], add: list[str]) -> Iterator[Piece]:
    if cut:
        yield "cut", "".join(cut)
    if add:
        yield "add", "".join(add)
    cut.clear()
    add.clear()


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    kind: Change | None = None
    texts: list[str] = []
    for change, text in pieces:
        if kind is not None and change != kind:
            yield kind, "".join(texts)
            texts = []
        kind = change
        texts.append(text)
    if kind is not None:
        yield kind, "".join(texts)
