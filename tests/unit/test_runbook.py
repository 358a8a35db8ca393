"""Run-books as blocks: what the documents use is understood, everything else stays text."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.api.runbook import Span, parse_runbook, read_runbook, spans
from monitor.errors import NotFound

BOOK = """# `stale_data`: rows again

**What it means.** Rows the model *has* seen, see [signals](../signals.md).

## First

- Stop.
- Look at `shard`,
  then go back.

```python
watch(x)  # **not bold**

w.step()
```

| a | b |
| --- | --- |
| 1 | `2` |
<script>alert(1)</script>
"""


def test_all_forms() -> None:
    book = parse_runbook(BOOK)
    assert book.title == "stale_data: rows again"
    kinds = [block.kind for block in book.blocks]
    assert kinds == ["text", "heading", "list", "code", "table"]
    assert book.blocks[2].lines[1][-1] == Span("text", ", then go back.")
    assert [line[0].text for line in book.blocks[3].lines] == [
        "watch(x)  # **not bold**",
        "",
        "w.step()",
    ]
    assert book.blocks[4].lines[1] == (Span("text", "1"), Span("text", "\t"), Span("code", "2"))


def test_spans() -> None:
    assert spans("a **b** *c* `d` [e](f)") == (
        Span("text", "a "),
        Span("bold", "b"),
        Span("text", " "),
        Span("stress", "c"),
        Span("text", " "),
        Span("code", "d"),
        Span("text", " "),
        Span("text", "e"),
    )
    assert spans("2 * 3 * 4") == (Span("text", "2 * 3 * 4"),)
    assert spans("<img src=x>") == (Span("text", "<img src=x>"),)


def test_a_book_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_runbook(tmp_path / "none.md")
