"""Every format's payload of every moment, as recorded (refresh: make golden, and read them)."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from monitor.formats import FORMATS, load_format
from monitor.storage.base import Database
from monitor.storage.engine import open_database
from tests.golden.format_story import CONFIG, MOMENTS, message_at, tell_run

FOLDER = Path(__file__).parent / "formats"


@pytest.fixture
def told(sqlite_url: str) -> Generator[Database]:
    database = open_database(sqlite_url)
    tell_run(database)
    yield database
    database.close()


def readable(payload: bytes) -> tuple[str, str]:
    """The payload as a file a person can review, and the file's ending."""
    try:
        text = json.dumps(json.loads(payload), indent=1, ensure_ascii=False)
    except ValueError:
        return payload.decode().replace("\r\n", "\n"), "txt"
    return f"{text}\n", "json"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_payload_is_as_recorded(told: Database, name: str, moment: str) -> None:
    payload = load_format(name).render(message_at(told, moment), CONFIG)
    text, ending = readable(payload)
    file = FOLDER / name / f"{moment}.{ending}"
    if os.environ.get("WATCHKEEPER_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, "run `make golden` and review the difference"


def test_nothing_recorded_belongs_to_no_format() -> None:
    assert {folder.name for folder in FOLDER.iterdir()} == set(FORMATS)


def test_the_text_is_what_somebody_woken_at_night_needs(told: Database) -> None:
    text = message_at(told, "opened").text
    assert str(text).splitlines() == [
        "tiny-coder-160m: stale data since step 41,203 (03:12) - warning",
        "18 % of the rows in the last 20 batches were served before (declared: none). "
        "Train loss fell 0.21 meanwhile, the fixed probe rose 0.05.",
        "Likely cause: the loader began its shard again after a 4.1 s stall at step 41,198.",
        "So far 2 h 10 min, $4.60. Last checkpoint before it: 41,000; going back loses 24 min.",
        "First: stop the run, look at the loader's shard index.",
        "What this means: https://watch.example.org/docs/detectors/stale_data",
        "Show: https://watch.example.org/alerts/3f0c9a1b2d4e5f60718293a4b5c6d7e8",
    ]
