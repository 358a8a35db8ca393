"""Channels: where messages go. Made, changed, tried out; their secrets go in and never come out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import urlsplit

from monitor.clock import Clock, monotonic_s
from monitor.domain import routing
from monitor.domain.routing import Route
from monitor.domain.secrets import masked
from monitor.domain.silence import parse_hours
from monitor.errors import Conflict, InvalidChannel, NotFound
from monitor.formats import format_names, load_format
from monitor.formats.base import AlertText, Format, FormField, Message, Request
from monitor.services.delivery import Answered, send
from monitor.services.gates import QUIET_HOURS
from monitor.storage.base import Channel, Database, UnitOfWork

LONGEST_VALUE = 4096


class Sender(Protocol):
    """A way out of the house (``monitor/senders``)."""

    def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST"
    ) -> Answered:
        """Send once. Never raises."""
        ...

    def examine(self, url: str) -> str:
        """Why it will not send there; empty where it will try."""
        ...


@dataclass(frozen=True, slots=True)
class FormatView:
    """A format and the form it asks for. ``asleep``: why it cannot be used here, and the remedy."""

    name: str
    label: str
    about: str
    asleep: str
    fields: list[FormField]


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel as it may be shown: of secrets scheme, host and last characters at most.

    ``fixed``: it comes from the server's settings and is changed there.
    """

    id: str
    name: str
    format: str
    label: str
    enabled: bool
    disabled_reason: str
    fixed: bool
    asleep: str
    route: Route
    quiet_hours: str
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class TestAnswer:
    """What came of one test message: the receiver's own words, as far as they are kept."""

    moment: str
    sent: bool
    status: int | None
    answer: str
    error: str
    latency_s: float


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be changed; None leaves it as it is. In ``config`` None takes a value away.

    ``quiet_hours``: ``22:00-07:00 [Zone/Name]``; empty: those of the server's settings.
    """

    name: str | None = None
    config: Mapping[str, str | None] | None = None
    route: Route | None = None
    quiet_hours: str | None = None
    enabled: bool | None = None


class Channels:
    """All that can be done with channels. ``fixed``: ids that belong to the server's settings."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        senders: Mapping[str, Sender],
        *,
        fixed: Collection[str] = (),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        monotonic: Clock = monotonic_s,
    ) -> None:
        self._database = database
        self._clock = clock
        self._senders = senders
        self._fixed = frozenset(fixed)
        self._new_id = new_id
        self._monotonic = monotonic

    def formats(self) -> list[FormatView]:
        """All formats there are."""
        return [
            FormatView(name, made.label, made.about, asleep(made), list(made.fields))
            for name, made in ((name, load_format(name)) for name in format_names())
        ]

    def all(self) -> list[ChannelView]:
        """All channels, by name."""
        with self._database.read() as uow:
            held = uow.channels.all()
        return [self.view(channel) for channel in sorted(held, key=lambda one: one.name.lower())]

    def create(self, format_name: str, draft: Draft) -> ChannelView:
        """A new channel.

        Raises:
            InvalidChannel: there is no such format, or its form is not filled in as it must be.
        """
        made = _known(format_name)
        bare = Channel(self._new_id(), draft.name or made.label, format_name, {})
        channel = self._changed(bare, draft, made)
        self._database.write(lambda uow: uow.channels.save(channel))
        return self.view(channel)

    def change(self, channel: str, draft: Draft) -> ChannelView:
        """Change what the draft names. A secret that is not given stays as it is.

        Raises:
            NotFound, Conflict, InvalidChannel: as their words say.
        """
        self._refuse_fixed(channel)
        held = self._held(channel)
        changed = self._changed(held, draft, _known(held.format))

        def work(uow: UnitOfWork) -> None:
            if uow.channels.get(channel) is None:
                raise NotFound("There is no such channel.")
            uow.channels.save(changed)

        self._database.write(work)
        return self.view(changed)

    def delete(self, channel: str) -> None:
        """Forget it; what waits for it is not sent.

        Raises:
            NotFound, Conflict: as their words say.
        """
        self._refuse_fixed(channel)
        if not self._database.write(lambda uow: uow.channels.delete(channel)):
            raise NotFound("There is no such channel.")

    def test(self, channel: str) -> list[TestAnswer]:
        """Really send a message, and a second that ends it where the receiver keeps a state.

        Raises:
            NotFound: there is no such channel.
        """
        held = self._held(channel)
        made = _known(held.format)
        answers = self._try(held, made, "opened")
        if made.lasting and answers[-1].sent:
            answers += self._try(held, made, "resolved")
        return answers

    def view(self, channel: Channel) -> ChannelView:
        """What may be shown of it."""
        made = _known(channel.format)
        return ChannelView(
            id=channel.id,
            name=channel.name,
            format=channel.format,
            label=made.label,
            enabled=channel.enabled,
            disabled_reason=channel.disabled_reason,
            fixed=channel.id in self._fixed,
            asleep=asleep(made),
            route=routing.route_of(channel.config),
            quiet_hours=str(channel.config.get(QUIET_HOURS) or ""),
            config=_shown(made.fields, channel.config),
        )

    # -- parts ---------------------------------------------------------------------------------

    def _held(self, channel: str) -> Channel:
        with self._database.read() as uow:
            held = uow.channels.get(channel)
        if held is None:
            raise NotFound("There is no such channel.")
        return held

    def _refuse_fixed(self, channel: str) -> None:
        if channel in self._fixed:
            raise Conflict(
                "This channel comes from the server's settings.",
                hint="Change WATCHKEEPER_WEBHOOK_URL and WATCHKEEPER_WEBHOOK_SECRET.",
            )

    def _changed(self, held: Channel, draft: Draft, made: Format) -> Channel:
        config = dict(held.config)
        if draft.route is not None:
            config[routing.KEY] = {"severity": draft.route.severity, "tags": list(draft.route.tags)}
        if draft.quiet_hours is not None:
            config[QUIET_HOURS] = _hours(draft.quiet_hours)
        if draft.config is not None or not held.config:
            config = _filled(made, config, draft.config or {})
            self._examine(made, held.config, config, draft.config or {})
        enabled = held.enabled if draft.enabled is None else draft.enabled
        name = (held.name if draft.name is None else draft.name).strip() or made.label
        reason = "" if enabled else held.disabled_reason or "switched off by hand"
        return replace(held, name=name, config=config, enabled=enabled, disabled_reason=reason)

    def _examine(
        self,
        made: Format,
        before: Mapping[str, Any],
        config: Mapping[str, Any],
        given: Mapping[str, str | None],
    ) -> None:
        """Refuse what could not be sent, or would carry a kept secret to another host."""
        request = _sample_request(made, config, self._clock())
        why = (
            self._senders[made.sender].examine(request.url) if made.sender in self._senders else ""
        )
        if why:
            raise InvalidChannel(f"Nothing may be sent there: {why}.")
        kept = [field.label for field in made.fields if field.secret and before.get(field.name)
                and given.get(field.name, "") == ""]  # fmt: skip
        if kept and _host(_sample_request(made, before, self._clock()).url) != _host(request.url):
            raise InvalidChannel(
                f"The address is another one: give {', '.join(kept)} again.",
                hint="A stored secret is only ever sent to the host it was given for.",
            )

    def _try(self, channel: Channel, made: Format, moment: str) -> list[TestAnswer]:
        if asleep(made):
            return [TestAnswer(moment, False, None, "", asleep(made), 0.0)]
        message = _test_message(channel, moment, self._clock(), self._new_id())
        payload = made.render(message, channel.config)
        answers = [self._answer(channel, made, message, payload, moment)]
        plain = made.fallback(payload) if answers[0].status == 400 else None
        if plain is not None:
            answers.append(self._answer(channel, made, message, plain, f"{moment}, as plain text"))
        return answers

    def _answer(
        self, channel: Channel, made: Format, message: Message, payload: bytes, moment: str
    ) -> TestAnswer:
        began = self._monotonic()
        got = send(made, channel, message.id, payload, self._senders, at=self._clock())
        went = got.status is not None and 200 <= got.status < 300
        took = self._monotonic() - began
        return TestAnswer(moment, went, got.status, got.said, got.error, took)


def asleep(made: Format) -> str:
    """Why a format cannot be used here and what would wake it; empty when it can."""
    if not made.needs or find_spec(made.needs) is not None:
        return ""
    return f"Needs {made.needs}, which is not installed: {made.wake}"


def _known(name: str) -> Format:
    try:
        return load_format(name)
    except KeyError:
        raise InvalidChannel(
            f"There is no format named {name!r}.", hint=f"There are {', '.join(format_names())}."
        ) from None


def _hours(text: str) -> str:
    try:
        parse_hours(text, "UTC")
    except ValueError as error:
        raise InvalidChannel(f"Quiet hours: {error}.") from None
    return " ".join(text.split())


def _filled(
    made: Format, held: Mapping[str, Any], given: Mapping[str, str | None]
) -> dict[str, Any]:
    """The form over what is held: empty leaves a secret, and takes away anything else."""
    fields = {field.name: field for field in made.fields}
    unknown = given.keys() - fields.keys()
    if unknown:
        raise InvalidChannel(f"{made.label} has no {', '.join(sorted(unknown))}.")
    config = dict(held)
    for name, value in given.items():
        text = (value or "").strip()
        if value is None or (not text and not fields[name].secret):
            config.pop(name, None)
        elif text:
            config[name] = _allowed(fields[name], text)
    missing = [
        field.label for field in made.fields if field.required and not config.get(field.name)
    ]
    if missing:
        raise InvalidChannel(f"{made.label} needs: {', '.join(missing)}.")
    return config


def _allowed(field: FormField, text: str) -> str:
    if len(text) > LONGEST_VALUE or not text.isprintable():
        raise InvalidChannel(f"{field.label} is too long, or holds characters that do not show.")
    if field.choices and text not in field.choices:
        raise InvalidChannel(f"{field.label} is one of {', '.join(field.choices)}.")
    return text


def _sample_request(made: Format, config: Mapping[str, Any], at: float) -> Request:
    """The request a message would make: what is wrong with the form shows here."""
    try:
        payload = made.render(_test_message(None, "opened", at, "form"), config)
        return made.request("msg_form", payload, config, at=at)
    except (KeyError, ValueError):
        raise InvalidChannel(f"{made.label} cannot be addressed with these values.") from None


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def _shown(fields: Sequence[FormField], config: Mapping[str, Any]) -> dict[str, str]:
    shown: dict[str, str] = {}
    for field in fields:
        value = str(config.get(field.name) or "")
        if value:
            shown[field.name] = masked(value) if field.secret else value
    return shown


def _test_message(channel: Channel | None, moment: str, at: float, number: str) -> Message:
    name = channel.name if channel is not None else "form"
    over = moment == "resolved"
    return Message(
        id=f"msg_test_{number}",
        moment=moment,
        at=at,
        text=AlertText(
            headline=f"Watchkeeper: test of {name}{' is over' if over else ''}",
            lines=("Nothing is wrong. Somebody pressed the test button; alerts arrive here.",),
        ),
        alert={
            "id": f"test_{channel.id if channel is not None else number}",
            "detector": "test",
            "severity": "info",
            "opened_at": at,
            **({"resolved_at": at} if over else {}),
        },
        run={"id": "test", "name": "test"},
    )
