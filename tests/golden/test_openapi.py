"""The API as a document: what is committed is what the program serves (refresh: make golden)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from monitor.app import create_app
from monitor.settings import Settings

FILE = Path(__file__).parent / "openapi.json"


def test_the_api_is_as_written_down() -> None:
    described = create_app(Settings()).openapi()
    described["info"]["version"] = "*"
    text = json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("WATCHKEEPER_WRITE_GOLDEN"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text, "run `make golden` and review the difference"
