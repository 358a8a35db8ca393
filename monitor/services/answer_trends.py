"""Answers over all samplings: numbers of each, days with their gaps, alerts to mark, and export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from statistics import fmean
from typing import Any

from monitor.domain.answer_metrics import AnswerMetrics, likeness, of_set
from monitor.domain.run import Run
from monitor.services.answers import samplings
from monitor.services.days import days_of
from monitor.services.views import AlertMark, AnswerTrends, PromptTrend, SamplingView, TrendPoint
from monitor.storage.base import UnitOfWork
from trainer_hooks.wire import from_cell

MARKED = ("answers_drift", "sampler_interference", "template_leak")
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")

Numbers = dict[str, dict[str, Any]]
"""Of one sampling, by prompt."""


def trends(uow: UnitOfWork, run: Run) -> AnswerTrends:
    """All samplings as trends, without reading a text."""
    known = samplings(uow, run)
    table: dict[str, Numbers] = {one.id: {} for one in known}
    for sampling, prompt, numbers in uow.answers.numbers(run.id):
        table.setdefault(sampling, {})[prompt] = numbers
    return AnswerTrends(
        zone=run.zone,
        points=list(_points(known, table)),
        days=days_of(known),
        prompts=_prompts(known, table),
        alerts=_marks(uow, run),
        sets=list(dict.fromkeys(one.prompt_set_hash for one in known)),
    )


def _points(known: list[SamplingView], table: dict[str, Numbers]) -> Iterator[TrendPoint]:
    before: dict[str, Numbers] = {}
    first: dict[str, Numbers] = {}
    for one in known:
        answers = table[one.id]
        metrics = [_metrics(numbers) for numbers in answers.values()]
        of = one.prompt_set_hash
        yield TrendPoint(
            one.id, one.weights_step, one.at, one.day, of, asdict(of_set(metrics)),
            _likeness(before.get(of), answers), _likeness(first.get(of), answers),
        )  # fmt: skip
        before[of] = answers
        first.setdefault(of, answers)


def _metrics(numbers: dict[str, Any]) -> AnswerMetrics:
    fields = {name: value for name, value in numbers.items() if name != "sketch"}
    for name in ("confidence", "logprob", "entropy", "reference_nll", "first_token"):
        fields[name] = None if fields[name] is None else from_cell(fields[name])
    return AnswerMetrics(**fields)


def _likeness(before: Numbers | None, now: Numbers) -> float | None:
    shared = [prompt for prompt in now if before and prompt in before]
    if not before or not shared:
        return None
    return fmean(likeness(before[prompt]["sketch"], now[prompt]["sketch"]) for prompt in shared)


def _prompts(known: list[SamplingView], table: dict[str, Numbers]) -> list[PromptTrend]:
    names = dict.fromkeys(prompt for one in known for prompt in table[one.id])
    return [
        PromptTrend(
            name,
            [table[one.id].get(name, {}).get("length") for one in known],
            [_rounded(table[one.id].get(name, {}).get("confidence")) for one in known],
        )
        for name in names
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _marks(uow: UnitOfWork, run: Run) -> list[AlertMark]:
    return [
        AlertMark(
            alert.id, alert.detector, alert.title, alert.state, alert.onset_step,
            alert.opened_step, alert.opened_at, alert.resolved_step,
        )
        for alert in uow.alerts.of_run(run.id)
        if alert.detector in MARKED
    ]  # fmt: skip


COLUMNS = (
    "day", "at", "weights_step", "sampling", "prompt_id", "system", "prompt", "text", "length",
    "confidence", "first_token", "entropy", "repeats", "stop_reason", "reference_nll", "checks",
    "temperature", "top_p", "seed", "max_tokens", "dtype", "tokenizer_hash", "model_label",
    "prompt_set_hash", "sanitized", "truncated",
)  # fmt: skip


def export_rows(uow: UnitOfWork, run: Run, sampling: str | None) -> Iterator[dict[str, Any]]:
    """All answers of a run (or of one sampling), oldest first, one row each."""
    numbers = {(s, p): found for s, p, found in uow.answers.numbers(run.id)}
    for one in samplings(uow, run):
        if sampling is not None and one.id != sampling:
            continue
        for answer in uow.answers.of_sampling(run.id, one.id):
            row = asdict(answer) | numbers.get((one.id, answer.prompt_id), {})
            row |= {"day": one.day, "sampling": one.id}
            yield {name: row.get(name) for name in COLUMNS}


def as_csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Rows as CSV. No cell begins as a formula: spreadsheets would run what a model wrote."""
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in COLUMNS])
        yield page.getvalue()
        page.seek(0)
        page.truncate()
    yield page.getvalue()


def _cell(value: Any) -> Any:
    """Text that begins like a formula gets an apostrophe before it; numbers stay what they are."""
    if isinstance(value, dict):
        value = " ".join(f"{name}={'yes' if passed else 'no'}" for name, passed in value.items())
    if isinstance(value, str) and value.startswith(FORMULA_BEGINS):
        return "'" + value
    return "" if value is None else value
