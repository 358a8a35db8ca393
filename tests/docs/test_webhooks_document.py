"""docs/webhooks.md explains every format: where to get its address, and a true example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from monitor.formats import FORMATS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")
ADDED_ON_SENDING = {"topic", "routing_key"}


def section(name: str) -> str:
    found = re.search(rf"^## [^\n]*\(`{name}`\)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/webhooks.md has no section about `{name}`"
    return found[1]


def first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_its_section(name: str) -> None:
    assert re.search(r"^Where to get the (address|key):", section(name), re.MULTILINE)
    assert f"`{name}`" in TEXT.partition("## Generic")[0], "it is missing in the table of kinds"


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "email"])
def test_the_example_is_what_is_sent(name: str) -> None:
    block = re.search(r"```json\n(.*?)```", section(name), re.DOTALL)
    assert block is not None
    shown = first(json.loads(block[1]))
    folder = ROOT / "tests" / "golden" / "formats" / name
    sent = first(json.loads((folder / "opened.json").read_text(encoding="utf-8")))
    assert set(shown) - ADDED_ON_SENDING <= set(sent)
    assert set(sent) <= set(shown)


def test_no_section_is_about_a_format_there_is_not() -> None:
    assert set(re.findall(r"^## [^\n]*\(`(\w+)`\)$", TEXT, re.MULTILINE)) == set(FORMATS)
