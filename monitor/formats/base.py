"""What a message format is: an alert's words in, bytes for one kind of receiver out. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a channel's settings. A ``secret`` one is never shown again."""

    name: str
    label: str
    secret: bool = False
    required: bool = True
    help: str = ""


@dataclass(frozen=True, slots=True)
class AlertText:
    """An alert in words. The headline stands alone: it is all a phone shows of it.

    ``lines`` are sentences in order of their use to somebody just woken.
    """

    headline: str
    lines: tuple[str, ...] = ()
    link: str = ""
    runbook: str = ""

    def __str__(self) -> str:
        return "\n".join((self.headline, *self.lines))


@dataclass(frozen=True, slots=True)
class Message:
    """What there is to say. ``alert`` is the alert as plain JSON; ``at`` its creation (UTC s)."""

    id: str
    moment: str
    at: float
    text: AlertText
    alert: Mapping[str, Any]
    run: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One POST, complete but for the connection. ``url`` may itself be a secret."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    method: Literal["POST", "PUT"] = "POST"


class Format(ABC):
    """Base of all formats.

    ``render`` makes the bytes once: they are stored and sent again unchanged on every retry.
    ``request`` addresses (and signs) them for one try at the instant ``at``.
    """

    name: ClassVar[str]
    fields: ClassVar[tuple[FormField, ...]]

    @abstractmethod
    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """The payload."""

    @abstractmethod
    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """The request for one try."""
