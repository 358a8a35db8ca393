"""Answers as JSON: our records as plain values, a number that is none as its name."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import Response

from trainer_hooks.wire import to_plain


class Plain(Response):
    """A record, or a dict of records, as strict JSON (never a bare NaN token)."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        text = json.dumps(
            to_plain(content), allow_nan=False, ensure_ascii=False, separators=(",", ":")
        )
        return text.encode("utf-8", "replace")
