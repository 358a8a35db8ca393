"""The slow way through a body: value by value, so that a bad one is refused alone.

It is also the way of non-finite numbers written as strings, which are facts and not errors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from monitor.domain.log import ColumnFrame, Matrix
from monitor.errors import MalformedBody, Unprocessable
from monitor.services.screening import (
    MAX_INSTANT_S,
    Parsed,
    Refusals,
    fitted,
    good_names,
    reason_against,
    to_whole_ms,
)
from monitor.storage.tables import storable
from trainer_hooks.wire import MAX_NAME_BYTES, MAX_STEP, Record

_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])
_NON_FINITE = {
    name: float(name)
    for name in ("nan", "inf", "-inf", "+inf", "infinity", "-infinity", "+infinity")
}
_ENVELOPE = ("run", "attempt", "source", "seq", "sent_at")


def parse(body: bytes) -> Parsed:
    """See ``parsing.parse``."""
    document = _load(body)
    if not isinstance(document, dict):
        raise Unprocessable("A batch is a JSON object.")
    sanitized = _Sanitized()
    refusals = Refusals()
    head = _envelope(document, sanitized)
    frames, values = _frames(document, refusals, sanitized)
    records = _records(document, refusals, sanitized)
    return Parsed(
        **head,
        frames=frames,
        records=records,
        values=values,
        refusals=refusals,
        sanitized=sanitized.any,
    )


def _load(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError:
        raise MalformedBody("The body is nested too deeply.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise MalformedBody(f"The body is not JSON: {error}.") from None


@dataclass(slots=True)
class _Sanitized:
    """Replaces what no database holds, and remembers that it did."""

    any: bool = False

    def text(self, value: str) -> str:
        clean = storable(value)
        self.any |= clean != value
        return clean

    def deep(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.deep(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self.deep(item) for key, item in value.items()}
        return value


def _envelope(document: dict[str, Any], sanitized: _Sanitized) -> dict[str, Any]:
    missing = [name for name in _ENVELOPE if name not in document]
    if missing:
        raise Unprocessable(f"The batch has no {', '.join(missing)}.")
    head: dict[str, Any] = {}
    for name in ("run", "attempt", "source"):
        text = document[name]
        if not isinstance(text, str) or not good_names(text):
            raise Unprocessable(f"{name} must be a text of 1 to {MAX_NAME_BYTES} bytes.")
        head[name] = sanitized.text(text)
    if not _is_step(document["seq"]):
        raise Unprocessable("seq must be a whole number from 0 to 2^63-1.")
    if not _is_instant(document["sent_at"]):
        raise Unprocessable("sent_at must be seconds since 1970.")
    through = document.get("through_step")
    if through is not None and not _is_step(through):
        raise Unprocessable("through_step must be a whole number from 0 to 2^63-1, or null.")
    return head | {
        "seq": document["seq"],
        "sent_at": float(document["sent_at"]),
        "through_step": through,
        "bystander": document.get("bystander") is True,
    }


def _list(document: dict[str, Any], name: str) -> list[Any]:
    items = document.get(name, [])
    if not isinstance(items, list):
        raise Unprocessable(f"{name} must be a list.")
    return items


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_STEP


def _is_instant(value: Any) -> bool:
    # The comparison is False for NaN.
    return _is_number(value) and -MAX_INSTANT_S <= value <= MAX_INSTANT_S


def _frames(
    document: dict[str, Any], refusals: Refusals, sanitized: _Sanitized
) -> tuple[tuple[ColumnFrame, ...], int]:
    frames: list[ColumnFrame] = []
    values = 0
    for index, raw in enumerate(_list(document, "frames")):
        reason = _reason_against(raw)
        if reason is not None:
            refusals.value(reason, frame=index, count=_cells(raw))
            continue
        reader = _FrameReader(index, raw, refusals, sanitized)
        frame = reader.read()
        if frame is not None:
            frames.append(frame)
            values += reader.values
    return tuple(frames), values


def _reason_against(raw: Any) -> str | None:
    if not isinstance(raw, dict):
        return "a frame is an object"
    steps, times, columns = raw.get("steps"), raw.get("times"), raw.get("columns")
    if not (isinstance(steps, list) and isinstance(times, list) and isinstance(columns, dict)):
        return "a frame has lists of steps and times and an object of columns"
    if len(steps) != len(times):
        return f"{len(steps)} steps but {len(times)} times"
    return None


def _cells(raw: Any) -> int:
    """How many values a frame that is refused whole would have held."""
    columns = raw.get("columns") if isinstance(raw, dict) else None
    if not isinstance(columns, dict):
        return 0
    return sum(_non_null(cells) for cells in columns.values())


def _non_null(cells: Any) -> int:
    return sum(cell is not None for cell in cells) if isinstance(cells, list) else 1


@dataclass(slots=True)
class _FrameReader:
    """Reads one frame of the right shape, refusing rows, columns and cells."""

    index: int
    raw: dict[str, Any]
    refusals: Refusals
    sanitized: _Sanitized
    values: int = 0
    columns: dict[str, list[float | None]] = field(default_factory=dict)

    def read(self) -> ColumnFrame | None:
        bad_rows = self._bad_rows()
        bad_counts = dict.fromkeys(bad_rows, 0)
        for key, cells in self.raw["columns"].items():
            self._column(key, cells, bad_counts)
        for row, reason in bad_rows.items():
            self.refusals.value(reason, frame=self.index, row=row, count=bad_counts[row])
        good = [row for row in range(len(self.raw["steps"])) if row not in bad_rows]
        if not good or not self.columns:
            return None
        return self._arrays(good)

    def _bad_rows(self) -> dict[int, str]:
        bad: dict[int, str] = {}
        for row, (step, time) in enumerate(zip(self.raw["steps"], self.raw["times"], strict=True)):
            if not _is_step(step):
                bad[row] = "the step is not a whole number from 0 to 2^63-1"
            elif not _is_instant(time):
                bad[row] = "the time is not seconds since 1970"
        return bad

    def _column(self, key: str, cells: Any, bad_counts: dict[int, int]) -> None:
        reason = self._reason_against(key, cells)
        if reason is not None:
            self.refusals.value(reason, frame=self.index, series=key, count=_non_null(cells))
            return
        read = list(self._cells(key, cells, bad_counts))
        if any(cell is not None for cell in read) or not any(c is not None for c in cells):
            self.columns[self.sanitized.text(key)] = read

    def _reason_against(self, key: str, cells: Any) -> str | None:
        if not good_names(key):
            return f"a series key is 1 to {MAX_NAME_BYTES} bytes"
        rows = len(self.raw["steps"])
        if not isinstance(cells, list):
            return "a column is a list"
        if len(cells) != rows:
            return f"{len(cells)} values for {rows} steps"
        if self.sanitized.text(key) in self.columns:
            return "two series of this frame would have the same key"
        return None

    def _cells(
        self, key: str, cells: list[Any], bad_counts: dict[int, int]
    ) -> Iterator[float | None]:
        for row, cell in enumerate(cells):
            if cell is None:
                yield None
            elif row in bad_counts:
                bad_counts[row] += 1
                yield None
            else:
                yield self._cell(key, row, cell)

    def _cell(self, key: str, row: int, cell: Any) -> float | None:
        value, reason = _to_value(cell)
        if reason is not None:
            self.refusals.value(reason, frame=self.index, series=key, row=row)
            return None
        self.values += 1
        return value

    def _arrays(self, good: list[int]) -> ColumnFrame:
        steps = np.array([self.raw["steps"][row] for row in good], np.int64)
        times = np.array([self.raw["times"][row] for row in good], np.float64)
        cells = [[column[row] for row in good] for column in self.columns.values()]
        present = None
        if any(None in column for column in cells):
            present = np.array([[c is not None for c in column] for column in cells], np.bool_)
        values = np.array(cells, np.float64)
        return ColumnFrame(steps, to_whole_ms(times), Matrix(tuple(self.columns), values, present))


def _to_value(cell: Any) -> tuple[float | None, str | None]:
    """The number of a cell, or the reason why it is none."""
    if _is_number(cell):
        try:
            return float(cell), None
        except OverflowError:
            return None, "a value must fit a 64-bit float"
    if isinstance(cell, str):
        value = _NON_FINITE.get(cell.lower())
        if value is not None:
            return value, None
        return None, 'a text is no value, but for "nan", "inf" and "-inf"'
    kinds = {bool: "true or false", list: "a list", dict: "an object"}
    return None, f"{kinds.get(type(cell), 'this')} is no value"


def _records(
    document: dict[str, Any], refusals: Refusals, sanitized: _Sanitized
) -> tuple[Record, ...]:
    good: list[Record] = []
    for index, raw in enumerate(_list(document, "records")):
        record, reason = _record(raw, sanitized)
        if record is not None and reason is None:
            reason = reason_against(record)
        if record is None or reason is not None:
            refusals.record(reason or "not a record", index)
        else:
            good.append(fitted(record))
    return tuple(good)


def _record(raw: Any, sanitized: _Sanitized) -> tuple[Record | None, str | None]:
    try:
        clean = _clean_answer(raw, sanitized.deep(raw))
        return _RECORD.validate_json(json.dumps(clean), strict=True), None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return None, f"{place}: {first['msg']}" if place else first["msg"]
    except (RecursionError, ValueError):
        return None, "nested too deeply"


def _clean_answer(raw: Any, clean: Any) -> Any:
    """Mark an answer whose text had to be changed, with size and hash of what it was."""
    if not isinstance(raw, dict) or raw.get("kind") != "answer":
        return clean
    if raw == clean or not isinstance(raw.get("text"), str):
        return clean
    original = raw["text"].encode("utf-8", "surrogatepass")
    return clean | {
        "sanitized": True,
        "text_bytes": raw.get("text_bytes") or len(original),
        "text_sha256": raw.get("text_sha256") or hashlib.sha256(original).hexdigest(),
    }
