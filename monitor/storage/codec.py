"""How numbers lie in a body: packed numpy columns under zstd.

A *log body* holds a whole batch: a JSON head (keys, records, note), then each frame's arrays. A
*block body* holds the points of one series: steps, times and ranks as differences in the narrowest
integer that holds them, values as float32 where that is exact and else as float64, the bytes of
equal weight together. Times are kept to the millisecond, values to the bit.
"""

from __future__ import annotations

import json
import struct
import threading
from functools import lru_cache
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from monitor.domain.block import Ranked
from monitor.domain.log import ColumnFrame, Floats, Ints, Mask, Matrix
from trainer_hooks.wire import RECORD_TYPES, Asleep, Record, to_plain

_HEAD = struct.Struct("<I")
_BLOCK = struct.Struct("<IBBBB")
_DIFFERENCES: tuple[np.dtype[Any], ...] = tuple(np.dtype(t) for t in ("i1", "<i2", "<i4", "<i8"))
_MAX_INFLATED = 1 << 28
_LONGEST_KEPT = 1 << 16
_MOST_KEPT = 2_000
_local = threading.local()


def _tools() -> tuple[zstandard.ZstdCompressor, zstandard.ZstdCompressor, Any]:
    """Fast and thorough compressors and the decompressor of this thread (they hold state)."""
    tools = getattr(_local, "tools", None)
    if tools is None:
        tools = (
            zstandard.ZstdCompressor(level=1),
            zstandard.ZstdCompressor(level=3),
            zstandard.ZstdDecompressor(),
        )
        _local.tools = tools
    return tools


def _inflate(body: bytes) -> bytes:
    inflated: bytes = _tools()[2].decompress(body, max_output_size=_MAX_INFLATED)
    return inflated


def narrow(values: Floats) -> NDArray[Any]:
    """The same numbers as float32 where every one of them is one, to the bit; else unchanged."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        small = values.astype(np.float32)
        same = small == values
    if same.all() or (same | np.isnan(values)).all():
        return small
    return values


def pack_entry(
    frames: tuple[ColumnFrame, ...], records: tuple[Record, ...], note: dict[str, Any]
) -> bytes:
    """The body of a log row."""
    heads: list[str] = []
    arrays: list[bytes] = []
    for frame in frames:
        keys, values_KS, present = _as_matrix(frame)
        small = narrow(values_KS)
        mask = "false" if present is None else "true"
        names = _names_text(keys) if len(keys) <= _MOST_KEPT else _to_text(keys)
        heads.append(f'{{"n":{len(frame.steps)},"k":{names},"f":{small.itemsize},"m":{mask}}}')
        arrays += [frame.steps.tobytes(), frame.times.tobytes(), small.tobytes()]
        if present is not None:
            arrays.append(np.packbits(present).tobytes())
    more = ""
    if records:
        more += f',"r":{_to_text([to_plain(record) for record in records])}'
    if note:
        more += f',"n":{_to_text(note)}'
    text = f'{{"f":[{",".join(heads)}]{more}}}'.encode()
    return _tools()[0].compress(b"".join([_HEAD.pack(len(text)), text, *arrays]))


def _to_text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


_names_text = lru_cache(maxsize=128)(_to_text)
"""Batch after batch has the same names."""


def _as_matrix(frame: ColumnFrame) -> tuple[tuple[str, ...], Floats, Mask | None]:
    columns = frame.columns
    if isinstance(columns, Matrix):
        return columns.keys_K, columns.values_KS, columns.present
    if not columns:
        return (), np.empty((0, len(frame.steps)), np.float64), None
    values_KS = np.stack([column.values for column in columns.values()])
    if all(column.present is None for column in columns.values()):
        return tuple(columns), values_KS, None
    everywhere = np.ones(len(frame.steps), np.bool_)
    masks = [everywhere if c.present is None else c.present for c in columns.values()]
    return tuple(columns), values_KS, np.stack(masks)


def unpack_entry(
    body: bytes,
) -> tuple[tuple[ColumnFrame, ...], tuple[Record, ...], dict[str, Any]]:
    """Frames, records and note of a log row's body. The arrays are read-only."""
    data = _inflate(body)
    (length,) = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    plain = len(text) <= _LONGEST_KEPT and b'"r":' not in text and b'"n":{' not in text
    head = _usual_head(text) if plain else _head(text)
    at = _HEAD.size + length
    frames: list[ColumnFrame] = []
    for frame in head["f"]:
        unpacked, at = _unpack_frame(data, at, frame)
        frames.append(unpacked)
    records = tuple(to_record(record) for record in head.get("r", ()))
    return tuple(frames), records, head.get("n", {})


def _head(text: bytes) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(text)
    for frame in head["f"]:
        frame["k"] = tuple(frame["k"])
    return head


_usual_head = lru_cache(maxsize=128)(_head)
"""Batch after batch has the same keys: hundreds of names to be read once. Not to be changed."""


def _unpack_frame(data: bytes, at: int, head: dict[str, Any]) -> tuple[ColumnFrame, int]:
    rows, keys = int(head["n"]), head["k"]
    cells = rows * len(keys)
    steps = np.frombuffer(data, "<i8", rows, at)
    times = np.frombuffer(data, "<f8", rows, at + 8 * rows)
    at += 16 * rows
    kind = "<f4" if head["f"] == 4 else "<f8"
    values = np.frombuffer(data, kind, cells, at).astype(np.float64).reshape(len(keys), rows)
    at += cells * int(head["f"])
    present = None
    if head["m"]:
        packed = np.frombuffer(data, np.uint8, (cells + 7) // 8, at)
        present = np.unpackbits(packed, count=cells).astype(np.bool_).reshape(len(keys), rows)
        at += len(packed)
    return ColumnFrame(steps, times, Matrix(keys, values, present)), at


def record_from_plain(plain: dict[str, Any]) -> dict[str, Any]:
    """The constructor's arguments of a record that was written by ``to_plain``."""
    fields = dict(plain)
    if "asleep" in fields:
        fields["asleep"] = [Asleep(**item) for item in fields["asleep"]]
    return fields


def to_record(plain: dict[str, Any]) -> Record:
    """A record from its plain form."""
    record: Record = RECORD_TYPES[plain["kind"]](**record_from_plain(plain))
    return record


def to_ms(times: Floats) -> Ints:
    """Instants in whole milliseconds."""
    return np.rint(times * 1000.0).astype(np.int64)


def pack_points(points: Ranked) -> bytes:
    """The body of a block. Steps rise strictly; there is at least one point."""
    ms = to_ms(points.times)
    pace = int(ms[1] - ms[0]) if len(ms) > 1 else 0
    steps = _narrowest(np.diff(points.steps))
    # Second differences: a steady step time costs next to nothing.
    times = _narrowest(np.diff(np.diff(ms), prepend=pace) if len(ms) > 1 else np.diff(ms))
    ranks = _narrowest(np.diff(points.ranks))
    values = narrow(points.values)
    head = _BLOCK.pack(len(points), steps.itemsize, times.itemsize, ranks.itemsize, values.itemsize)
    firsts = np.array([points.steps[0], ms[0], pace, points.ranks[0]], "<i8").tobytes()
    columns = b"".join(_shuffle(column) for column in (steps, times, ranks, values))
    return _tools()[1].compress(head + firsts + columns)


def _narrowest(values: Ints) -> NDArray[Any]:
    """The same integers in the narrowest kind that holds them."""
    if not len(values):
        return values.astype(_DIFFERENCES[0])
    low, high = int(values.min()), int(values.max())
    for dtype in _DIFFERENCES[:-1]:
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return values.astype(dtype)
    return values


def _shuffle(values: NDArray[Any]) -> bytes:
    return values.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def unpack_points(body: bytes) -> Ranked:
    """The points of a block body, as they were packed."""
    data = _inflate(body)
    count, steps_size, times_size, ranks_size, values_size = _BLOCK.unpack_from(data)
    first_step, first_ms, pace, first_rank = np.frombuffer(data, "<i8", 4, _BLOCK.size)
    at = _BLOCK.size + 32
    steps, at = _unshuffle(data, at, count - 1, f"<i{steps_size}")
    times, at = _unshuffle(data, at, count - 1, f"<i{times_size}")
    ranks, at = _unshuffle(data, at, count - 1, f"<i{ranks_size}")
    values, at = _unshuffle(data, at, count, f"<f{values_size}")
    paces = pace + np.cumsum(times, dtype=np.int64)
    return Ranked(
        steps=_sums(first_step, steps),
        times=_sums(first_ms, paces) / 1000.0,
        values=values.astype(np.float64),
        ranks=_sums(first_rank, ranks),
    )


def _sums(first: Any, differences: NDArray[Any]) -> Ints:
    sums = np.empty(len(differences) + 1, np.int64)
    sums[0] = first
    np.cumsum(differences, out=sums[1:])
    sums[1:] += first
    return sums


def _unshuffle(data: bytes, at: int, count: int, kind: str) -> tuple[NDArray[Any], int]:
    dtype = np.dtype(kind)
    size = count * dtype.itemsize
    raw = np.frombuffer(data, np.uint8, size, at).reshape(dtype.itemsize, count)
    return np.ascontiguousarray(raw.T).view(dtype).reshape(count), at + size
