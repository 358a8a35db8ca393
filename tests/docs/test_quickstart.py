"""The quick start says every setting of ``watch``, and its loop runs as it stands there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stub_server import StubServer
from trainer_hooks.loop.options import Options, WatchOptions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "quickstart.md").read_text(encoding="utf-8")


def test_each_setting_of_watch_is_named() -> None:
    table = PAGE.partition("## 5.")[2].partition("## 6.")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.+?) \|", table, re.MULTILINE))))
    assert named == {field.name for field in fields(Options)}


def test_the_keywords_of_watch_are_its_settings() -> None:
    own = {field.name: field.type for field in fields(Options)}
    keywords = {name: ref.__forward_arg__ for name, ref in WatchOptions.__annotations__.items()}
    assert keywords == own


@pytest.mark.torch
def test_the_three_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16))
    scope: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters()),
        "loader": [torch.randint(0, 16, (2, 9)) for _ in range(5)],
        "functional": torch.nn.functional,
    }
    code = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)[0]
    with StubServer() as server:
        monkeypatch.setenv("WATCHKEEPER_SERVER", server.url)
        monkeypatch.setenv("WATCHKEEPER_SPOOL_DIR", str(tmp_path))
        exec(code, scope)  # noqa: S102 - our own document
        scope["w"].close()
        assert sorted(server.received.series("loss/train")) == [1, 2, 3, 4, 5]
