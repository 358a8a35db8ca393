"""Sampled answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from monitor.domain.answer_metrics import measure, sketch
from monitor.storage import tables
from monitor.storage.codec import record_from_plain
from monitor.storage.dialects import insert
from trainer_hooks.wire import Answer, to_plain

_ANSWER = tables.answer.c


class SqlAnswers:
    """``base.Answers`` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, run: str, attempt: str, answers: Sequence[Answer], *, at: float) -> int:
        """Store answers; one of the same sampling and prompt is replaced. Returns how many."""
        if not answers:
            return 0
        statement = insert(self._connection, tables.answer)
        names = ("attempt", "weights_step", "at", "stored_at", "prompt_set_hash", "body", "numbers")
        done = statement.on_conflict_do_update(
            index_elements=["run", "sampling", "prompt"],
            set_={name: statement.excluded[name] for name in names},
        )
        self._connection.execute(done, [_to_row(run, attempt, answer, at) for answer in answers])
        return len(answers)

    def samplings(self, run: str) -> list[dict[str, Any]]:
        query = (
            sa.select(
                _ANSWER.sampling.label("id"),
                sa.func.max(_ANSWER.weights_step).label("weights_step"),
                sa.func.min(_ANSWER.at).label("at"),
                sa.func.max(_ANSWER.attempt).label("attempt"),
                sa.func.count().label("count"),
                sa.func.max(_ANSWER.prompt_set_hash).label("prompt_set_hash"),
            )
            .where(_ANSWER.run == run)
            .group_by(_ANSWER.sampling)
            .order_by(sa.text("at"), sa.text("id"))
        )
        return [dict(row) for row in self._connection.execute(query).mappings()]

    def of_sampling(self, run: str, sampling: str, prompt: str | None = None) -> list[Answer]:
        query = sa.select(_ANSWER.body).where(_ANSWER.run == run, _ANSWER.sampling == sampling)
        if prompt is not None:
            query = query.where(_ANSWER.prompt == prompt)
        bodies = self._connection.execute(query.order_by(_ANSWER.prompt)).scalars()
        return [Answer(**record_from_plain(body)) for body in bodies]

    def numbers(self, run: str) -> list[tuple[str, str, dict[str, Any]]]:
        of_run = _ANSWER.run == run
        query = sa.select(_ANSWER.sampling, _ANSWER.prompt, _ANSWER.numbers).where(of_run)
        rows = self._connection.execute(query).all()
        return [
            (row.sampling, row.prompt, row.numbers or self._measured(run, row.sampling, row.prompt))
            for row in rows
        ]

    def _measured(self, run: str, sampling: str, prompt: str) -> dict[str, Any]:
        """An answer that was stored before its numbers were."""
        query = sa.select(_ANSWER.body).where(
            _ANSWER.run == run, _ANSWER.sampling == sampling, _ANSWER.prompt == prompt
        )
        body = self._connection.execute(query).scalar_one()
        return _numbers(Answer(**record_from_plain(body)))


def _to_row(run: str, attempt: str, answer: Answer, at: float) -> dict[str, Any]:
    return {
        "run": run,
        "sampling": answer.sampling_id,
        "prompt": answer.prompt_id,
        "attempt": attempt,
        "weights_step": answer.weights_step,
        "at": answer.at,
        "stored_at": at,
        "prompt_set_hash": answer.prompt_set_hash,
        "body": to_plain(answer),
        "numbers": _numbers(answer),
    }


def _numbers(answer: Answer) -> dict[str, Any]:
    """What trends need of an answer: measured once, when it is stored."""
    plain: dict[str, Any] = to_plain(measure(answer))
    return plain | {"sketch": sketch(answer.text)}
