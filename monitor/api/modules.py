"""The modules a page needs, so that a browser fetches all at once, not level by level."""

from __future__ import annotations

import posixpath
import re
from functools import cache

from monitor import resources

_IMPORT = re.compile(r"^import [^;]*?from '(\.[^']+)';", re.MULTILINE)


@cache
def modules_of(entry: str) -> tuple[str, ...]:
    """Paths under ``static/js`` of what an entry module imports, near ones first."""
    folder = resources.web_folder() / "static" / "js"
    found: dict[str, None] = {entry: None}
    waiting = [entry]
    while waiting:
        here = waiting.pop(0)
        file = folder / here
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        for name in _IMPORT.findall(text):
            there = posixpath.normpath(posixpath.join(posixpath.dirname(here), name))
            if there not in found:
                found[there] = None
                waiting.append(there)
    return tuple(found)[1:]
