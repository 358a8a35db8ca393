"""TensorBoard event files, read without TensorFlow: scalars of summaries, old form and new.

Field numbers are those of tensorflow/core/util/event.proto, framework/summary.proto and
framework/tensor.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from monitor.importers.base import RawLog, RawRow, Tally
from monitor.importers.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    double,
    fields,
    signed,
    single,
    varint,
)
from monitor.importers.tfrecord import begins_a_record, records

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT, _FLOAT_VAL, _DOUBLE_VAL, _INT_VAL, _INT64_VAL = 1, 4, 5, 6, 7, 10
_CONTENT_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
"""How DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64 and DT_HALF lie in ``tensor_content``."""


def recognises(head: bytes) -> bool:
    """Whether it begins with a TFRecord."""
    return begins_a_record(head)


def read(stream: BinaryIO, tally: Tally) -> RawLog:
    """One row an event: its step, wall time, and scalars by tag."""
    return RawLog(_rows(stream, tally))


def _rows(stream: BinaryIO, tally: Tally) -> Iterator[RawRow]:
    for number, data in records(stream, tally):
        try:
            cells, others = _event(data)
        except (Malformed, struct.error):
            tally.leave("a record that is no event", number)
            continue
        if others:
            tally.leave("a summary that is no scalar", number, others)
        if len(cells) > 2:
            yield RawRow(number, cells)


def _event(data: bytes) -> tuple[dict[str, float], int]:
    """Cells of one event, and how many of its values are no scalars."""
    cells: dict[str, float] = {"wall_time": 0.0, "step": 0}
    others = 0
    for number, kind, value in fields(data):
        if isinstance(value, bytes):
            if number == _WALL_TIME and kind == FIXED64:
                cells["wall_time"] = double(value)
            elif number == _SUMMARY and kind == BYTES:
                others += _summary(value, cells)
        elif number == _STEP and kind == VARINT:
            cells["step"] = signed(value)
    return cells, others


def _summary(data: bytes, cells: dict[str, float]) -> int:
    others = 0
    for number, kind, value in fields(data):
        if number == 1 and kind == BYTES and isinstance(value, bytes):
            tag, scalar = _value(value)
            if scalar is None or tag in ("step", "wall_time"):
                others += 1
            else:
                cells[tag] = scalar
    return others


def _value(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, kind, value in fields(data):
        if not isinstance(value, bytes):
            continue
        if number == _TAG and kind == BYTES:
            tag = value.decode("utf-8", "replace")
        elif number == _SIMPLE_VALUE and kind == FIXED32:
            scalar = single(value)
        elif number == _TENSOR and kind == BYTES:
            scalar = _tensor(value)
    return tag or "unnamed", scalar


def _tensor(data: bytes) -> float | None:
    """The number of a tensor that holds exactly one, None of any other."""
    dtype, content, listed = 0, b"", b""
    single_ints: list[int] = []
    for number, _, value in fields(data):
        if isinstance(value, int):
            if number == _DTYPE:
                dtype = value
            elif number in (_INT_VAL, _INT64_VAL):
                single_ints.append(signed(value))
        elif number == _CONTENT:
            content = value
        elif number in (_FLOAT_VAL, _DOUBLE_VAL, _INT_VAL, _INT64_VAL):
            listed += value
    if single_ints:
        return float(single_ints[0]) if len(single_ints) == 1 else None
    if dtype in (3, 9) and listed and not content:
        value, end = varint(listed, 0)
        return float(signed(value)) if end == len(listed) else None
    form = _CONTENT_FORMATS.get(dtype, "")
    raw = content or listed
    fits = form and len(raw) == struct.calcsize(form)
    return float(struct.unpack(form, raw)[0]) if fits else None
