"""Bodies of batches for the tests of the store."""

from __future__ import annotations

import json
from typing import Any


def body(
    seq: int = 0,
    *,
    run: str = "r",
    attempt: str = "a",
    source: str = "s",
    steps: list[Any] | None = None,
    columns: dict[str, Any] | None = None,
    records: Any = None,
    **more: Any,
) -> bytes:
    """One batch of one frame, as a client would send it; times are a second a step."""
    frames: list[dict[str, Any]] = []
    if columns is not None:
        rows = steps if steps is not None else list(range(len(next(iter(columns.values())))))
        frames = [
            {"steps": rows, "times": [float(i) for i in range(len(rows))], "columns": columns}
        ]
    batch = {
        "v": 1,
        "run": run,
        "attempt": attempt,
        "source": source,
        "seq": seq,
        "sent_at": 1000.0,
        "frames": frames,
        "records": [] if records is None else records,
    }
    return json.dumps(batch | more).encode()
