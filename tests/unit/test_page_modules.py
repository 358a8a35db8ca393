"""What a page asks the browser to fetch at once is there, and is all of it."""

from __future__ import annotations

from monitor import resources
from monitor.api.modules import modules_of


def test_all_modules_of_a_page_are_named_once_and_there() -> None:
    found = modules_of("pages/run.js")
    folder = resources.web_folder() / "static" / "js"
    assert len(found) == len(set(found)) > 10
    assert {"chart.js", "tracks.js", "plotting.js"} <= set(found)  # near and far ones
    assert all((folder / name).is_file() for name in found)


def test_a_page_without_a_script_needs_none() -> None:
    assert modules_of("pages/none.js") == ()
