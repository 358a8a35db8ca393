"""Hugging Face ``trainer_state.json``: the history a Trainer keeps beside its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from monitor.errors import UnreadableLog
from monitor.importers.base import RawLog, RawRow, Tally
from monitor.importers.json_lines import LONGEST_DOCUMENT, document, flatten
from trainer_hooks.wire import Scalar

_SUMMARY = ("train_runtime", "total_flos")
_OF_AN_EVALUATION = ("_runtime", "_samples_per_second", "_steps_per_second")


def recognises(head: bytes) -> bool:
    """Whether it is an object that holds a history or begins as Trainers begin theirs."""
    text = head.decode("utf-8-sig", "replace").lstrip()
    marks = ('"log_history"', '"best_model_checkpoint"', '"is_hyper_param_search"')
    return text.startswith("{") and any(mark in text for mark in marks)


def read(stream: BinaryIO, tally: Tally) -> RawLog:
    """The history's rows, and the plan the file tells.

    Raises:
        UnreadableLog: no JSON, or no history in it.
    """
    found = document(stream.read(LONGEST_DOCUMENT + 1))
    history = found.get("log_history") if isinstance(found, dict) else None
    if not isinstance(history, list):
        raise UnreadableLog("There is no log_history in this file.")
    return RawLog(_rows(history, tally), _facts(found))


def _rows(history: list[Any], tally: Tally) -> Iterator[RawRow]:
    for number, item in enumerate(history, start=1):
        if not isinstance(item, dict):
            tally.leave("the entry is no object", number)
        elif any(name in item for name in _SUMMARY):
            tally.leave("the summary of the whole training", number)
        else:
            flat = flatten(item)
            yield RawRow(number, {n: v for n, v in flat.items() if not _about_an_evaluation(n)})


def _about_an_evaluation(name: str) -> bool:
    return name.startswith("eval_") and name.endswith(_OF_AN_EVALUATION)


def _facts(state: dict[str, Any]) -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {}
    planned, epochs = state.get("max_steps"), state.get("num_train_epochs")
    if isinstance(planned, int) and not isinstance(planned, bool) and 0 < planned < 2**53:
        facts["planned_steps"] = planned
    if isinstance(epochs, (int, float)) and not isinstance(epochs, bool):
        if 0 < epochs < 1e6 and math.isfinite(epochs):
            facts["declared_epochs"] = float(epochs)
    return facts
