"""What a message format is: an alert's words in, bytes for one kind of receiver out. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

SenderName = Literal["http", "smtp", "apprise"]
"""How the bytes leave: a file of ``monitor/senders`` each."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a channel's settings. A ``secret`` one is never shown again.

    ``choices``: the values it may have; without them any text. ``default`` stands in for nothing.
    """

    name: str
    label: str
    secret: bool = False
    required: bool = True
    help: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""


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
    """What there is to say. ``alert`` is the alert as plain JSON; ``at`` its creation (UTC s).

    ``others``: ``{alert, run}`` of further runs the same message speaks of. A digest has no alert.
    """

    id: str
    moment: str
    at: float
    text: AlertText
    alert: Mapping[str, Any]
    run: Mapping[str, Any]
    others: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One try, complete but for the connection. ``url`` may itself be a secret.

    Over HTTP ``headers`` are those of the request. Over SMTP ``url`` is ``smtp://host:port`` and
    ``headers`` hold ``security``, ``user``, ``password``, ``from`` and ``to``, which are not sent.
    """

    url: str
    body: bytes
    headers: Mapping[str, str]
    method: Literal["POST", "PUT"] = "POST"


class Format(ABC):
    """Base of all formats.

    ``render`` makes the bytes once: they are stored and sent again unchanged on every retry.
    They never hold a secret, for they are stored. ``request`` addresses (and signs) them for one
    try at the instant ``at``; what is secret is added there.

    ``label`` names the receiver to people, ``about`` says where they get its address. ``needs`` is
    a module it cannot do without, ``wake`` the command that brings it. ``lasting``: the receiver
    keeps a state of its own per alert, so that it must hear of every end. ``renew_every_s``: it
    forgets what is not repeated, so that what is open is sent again at that pace.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    about: ClassVar[str] = ""
    fields: ClassVar[tuple[FormField, ...]]
    sender: ClassVar[SenderName] = "http"
    needs: ClassVar[str] = ""
    wake: ClassVar[str] = ""
    lasting: ClassVar[bool] = False
    renew_every_s: ClassVar[float] = 0.0

    @abstractmethod
    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """The payload."""

    @abstractmethod
    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """The request for one try."""

    def fallback(self, payload: bytes) -> bytes | None:
        """The same in the receiver's plainest form, tried once after it answered 400."""
        return None

    def renew(self, messages: Sequence[Message], config: Mapping[str, Any]) -> bytes:
        """All that is open, in one payload. For formats with ``renew_every_s``."""
        raise NotImplementedError
