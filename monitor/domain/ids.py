"""Ids that follow from what they name: the same on every replay, in every process."""

from __future__ import annotations

import uuid

NAMESPACE = uuid.UUID("5c2f6f0e-0a5b-5f0b-9d0e-6b8b0c1d7a11")


def alert_id(run: str, detector: str, subject: str, episode: int) -> str:
    """The same episode has the same id on every replay, in every process."""
    return uuid.uuid5(NAMESPACE, "\x1f".join((run, detector, subject, str(episode)))).hex


def message_id(alert: str, channel: str, moment: str, count: int | str) -> str:
    """The webhook-id of a message: the same on every replay and every try."""
    name = "\x1f".join((alert, channel, moment, str(count)))
    return f"msg_{uuid.uuid5(NAMESPACE, name).hex}"


def named_id(*words: str) -> str:
    """An id that follows from words."""
    return uuid.uuid5(NAMESPACE, "\x1f".join(words)).hex
