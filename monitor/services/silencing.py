"""Silences and rules as people make them: checked, stored, and put to work at once."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from monitor.domain.ids import named_id
from monitor.domain.rule import Rule, problems
from monitor.domain.silence import Silence, is_time_of_day, is_zone
from monitor.errors import NotFound, UnknownFilter
from monitor.storage.base import Database, UnitOfWork


def add_silence(database: Database, silence: Silence, *, at: float) -> Silence:
    """Store a silence; the stored one, with its id.

    Raises:
        UnknownFilter: its zone or its times are none.
    """
    _check(silence)
    made = replace(
        silence,
        id=silence.id or named_id("silence", *map(str, asdict(silence).values()), str(at)),
        created_at=at,
    )

    def work(uow: UnitOfWork) -> Silence:
        uow.silences.save(made)
        return made

    return database.write(work)


def remove_silence(database: Database, silence: str, *, at: float) -> None:
    """End a silence; what it held back is looked at at once.

    Raises:
        NotFound: there is none of this id.
    """

    def work(uow: UnitOfWork) -> None:
        if not uow.silences.delete(silence):
            raise NotFound("There is no such silence.")
        uow.outbox.release(at=at)

    database.write(work)


def _check(silence: Silence) -> None:
    if not is_zone(silence.zone):
        raise UnknownFilter(
            f"There is no time zone {silence.zone!r}.", hint="Such as Europe/Paris."
        )
    weekly = bool(silence.begin or silence.end)
    once = silence.starts_at is not None or silence.ends_at is not None
    if weekly == once:
        raise UnknownFilter("A silence is either once (from, to) or by the week (begin, end).")
    if weekly and not (is_time_of_day(silence.begin) and is_time_of_day(silence.end)):
        raise UnknownFilter("Times of day are HH:MM, such as 22:00.")
    if once and not (silence.starts_at or 0.0) < (silence.ends_at or 0.0):
        raise UnknownFilter("A silence must end after it begins.")


def save_rule(database: Database, rule: Rule, *, at: float) -> Rule:
    """Make or change a rule; runs under way are judged by it from here on.

    Raises:
        UnknownFilter: something about it is not as it must be.
    """
    wrong = problems(rule)
    if wrong:
        raise UnknownFilter(wrong[0])

    def work(uow: UnitOfWork) -> Rule:
        uow.rules.save(rule, at=at)
        _spread(uow, at)
        return rule

    return database.write(work)


def remove_rule(database: Database, rule: str, *, at: float) -> None:
    """Forget a rule; the alerts it opened in runs under way are closed.

    Raises:
        NotFound: there is none of this id.
    """

    def work(uow: UnitOfWork) -> None:
        if not uow.rules.delete(rule):
            raise NotFound("There is no such rule.")
        _spread(uow, at)

    database.write(work)


def _spread(uow: UnitOfWork, at: float) -> None:
    plain = plain_rules(uow)
    for run in uow.runs.live():
        uow.log.append_note(run.id, "config", {"rules": plain}, at=at)


def plain_rules(uow: UnitOfWork) -> list[dict[str, Any]]:
    """All rules as they are written into logs."""
    return [asdict(rule) for rule in uow.rules.all()]
