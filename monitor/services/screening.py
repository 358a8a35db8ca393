"""What both ways through a body share: the parsed batch, refusals, and rules for records."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monitor.domain.log import ColumnFrame, Floats, Mask
from trainer_hooks.wire import (
    MAX_ANSWER_BYTES,
    MAX_NAME_BYTES,
    MAX_STEP,
    Answer,
    Record,
    RefusedValue,
    RunStart,
)

MAX_LISTED = 100
MAX_INSTANT_S = 1e11
"""No clock is further off than the year 5138: beyond it a time is no time."""

_STEPS = {"step", "begin_step", "end_step", "weights_step", "first_step", "last_step"}
_INSTANTS = {"at", "begin_at", "end_at"}
_NAMES = {"key", "name", "group", "source", "phase_id", "sampling_id", "prompt_id"}
_MAY_BE_EMPTY = {"group", "source"}
_MAX_ORDINAL = 2**31 - 1


@dataclass(slots=True)
class Refusals:
    """What was not taken: all are counted, the first hundred are listed."""

    values: int = 0
    records: int = 0
    listed: list[RefusedValue] = field(default_factory=list)

    def value(
        self,
        reason: str,
        *,
        frame: int | None,
        series: str | None = None,
        row: int | None = None,
        count: int = 1,
    ) -> None:
        """Refuse ``count`` values at a place."""
        self.values += count
        if len(self.listed) < MAX_LISTED:
            shown = None if series is None else series[:MAX_NAME_BYTES]
            self.listed.append(RefusedValue(reason, frame=frame, series=shown, row=row))

    def record(self, reason: str, index: int) -> None:
        """Refuse one record."""
        self.records += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(RefusedValue(reason, record=index))

    def copy(self) -> Refusals:
        """One that may grow by itself."""
        return Refusals(self.values, self.records, list(self.listed))


@dataclass(frozen=True, slots=True)
class Parsed:
    """A batch as numpy columns, what was good of it, and what was not. ``values`` are non-null."""

    run: str
    attempt: str
    source: str
    seq: int
    sent_at: float
    through_step: int | None
    frames: tuple[ColumnFrame, ...]
    records: tuple[Record, ...]
    values: int
    refusals: Refusals
    sanitized: bool = False
    bystander: bool = False


def good_names(*names: str) -> bool:
    """Whether each is a name: not empty, at most 512 bytes."""
    return all(name and len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES for name in names)


def good_times(times: Floats) -> Mask:
    """[S] which times are instants at all."""
    with np.errstate(invalid="ignore"):
        good: Mask = np.abs(times) <= MAX_INSTANT_S
    return good


def to_whole_ms(times: Floats) -> Floats:
    """Times to the millisecond, as they are kept for ever: log and block then agree."""
    return np.rint(times * 1000.0) / 1000.0


def screen(records: Iterable[Record], refusals: Refusals) -> tuple[Record, ...]:
    """The records that may be stored, trimmed to fit; the others are refused by index."""
    good: list[Record] = []
    for index, record in enumerate(records):
        reason = reason_against(record)
        if reason is None:
            good.append(fitted(record))
        else:
            refusals.record(reason, index)
    return tuple(good)


def reason_against(record: Record) -> str | None:
    """Why a record of the right types cannot be stored; None if it can."""
    for item in dataclasses.fields(record):
        reason = _reason_against(item.name, getattr(record, item.name))
        if reason is not None:
            return reason
    return None


def _reason_against(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if name in _STEPS and not 0 <= value <= MAX_STEP:
        return f"{name} is not a step: 0 to 2^63-1"
    if name in _INSTANTS and not (math.isfinite(value) and abs(value) <= MAX_INSTANT_S):
        return f"{name} is not an instant"
    if name == "ordinal" and not 0 <= value <= _MAX_ORDINAL:
        return "ordinal is out of range"
    if name in _NAMES and not good_names(value) and (value or name not in _MAY_BE_EMPTY):
        return f"{name} is empty or longer than {MAX_NAME_BYTES} bytes"
    return None


def fitted(record: Record) -> Record:
    """The record within its bounds: a long answer is cut, an unknown zone is UTC."""
    if isinstance(record, Answer):
        return fit_answer(record)
    if isinstance(record, RunStart):
        return _fit_start(record)
    return record


def _fit_start(start: RunStart) -> RunStart:
    price = start.price_per_hour
    if price is not None and not math.isfinite(price):
        start = dataclasses.replace(start, price_per_hour=None)
    if not _is_zone(start.zone):
        start = dataclasses.replace(start, zone="UTC")
    return start


def _is_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # not there, or no name at all
        return False
    return True


def fit_answer(answer: Answer) -> Answer:
    """An answer whose text is at most 256 KiB, cut at a code point; size and hash of the whole."""
    data = answer.text.encode("utf-8", "surrogatepass")
    whole = answer.text_bytes and answer.text_sha256
    if not whole:
        answer = dataclasses.replace(
            answer, text_bytes=len(data), text_sha256=hashlib.sha256(data).hexdigest()
        )
    if len(data) <= MAX_ANSWER_BYTES:
        return answer
    text = data[:MAX_ANSWER_BYTES].decode("utf-8", "ignore")
    kept = _tokens_within(answer.token_texts, len(text))
    return dataclasses.replace(
        answer,
        text=text,
        truncated=True,
        token_texts=answer.token_texts[:kept],
        token_ids=answer.token_ids[:kept],
        token_logprobs=answer.token_logprobs[:kept],
        token_entropies=answer.token_entropies[:kept],
    )


def _tokens_within(texts: list[str], size: int) -> int:
    total = 0
    for index, text in enumerate(texts):
        total += len(text)
        if total > size:
            return index
    return len(texts)
