"""Channels: where alerts go, and the formats they go in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from monitor.api.auth import Reading
from monitor.api.deps import ChannelsPart
from monitor.api.plain import Plain
from monitor.api.schemas import MISSING, PROBLEMS
from monitor.domain.routing import Route
from monitor.services.channels import ChannelView, Draft, FormatView, TestAnswer

router = APIRouter(prefix="/api/v1", tags=["channels"], dependencies=[Reading], responses=PROBLEMS)

Name = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f]*$")]
Tag = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$")]

Hours = Annotated[
    str,
    Field(
        max_length=100,
        description="22:00-07:00 and a time zone (else the run's); empty: the server's.",
    ),
]


class RouteBody(BaseModel):
    """What the channel hears of: this severity and above; with tags only runs that have one."""

    model_config = ConfigDict(extra="forbid")

    severity: Literal["info", "warning", "critical"] = "warning"
    tags: Annotated[list[Tag], Field(max_length=50)] = Field(default_factory=list)


class NewChannel(BaseModel):
    """A channel to be made. ``config`` holds the fields its format asks for."""

    model_config = ConfigDict(extra="forbid")

    format: Annotated[str, Field(max_length=100)]
    name: Name = ""
    config: dict[str, str] = Field(default_factory=dict)
    route: RouteBody = Field(default_factory=RouteBody)
    quiet_hours: Hours = ""
    enabled: bool = True


class ChangedChannel(BaseModel):
    """What to change; what is left out stays. In ``config`` an empty secret stays too, and null
    takes a value away."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    config: dict[str, str | None] | None = None
    route: RouteBody | None = None
    quiet_hours: Hours | None = None
    enabled: bool | None = None

    def draft(self) -> Draft:
        """What the service is asked to change."""
        return Draft(self.name, self.config, _route(self.route), self.quiet_hours, self.enabled)


@dataclass(frozen=True, slots=True)
class FormatList:
    """All formats, and the form of each."""

    formats: list[FormatView]


@dataclass(frozen=True, slots=True)
class ChannelList:
    """All channels, by name."""

    channels: list[ChannelView]


@dataclass(frozen=True, slots=True)
class Tested:
    """What the receiver answered to each test message."""

    answers: list[TestAnswer]


def _route(body: RouteBody | None) -> Route | None:
    return None if body is None else Route(body.severity, tuple(dict.fromkeys(body.tags)))


@router.get("/formats", response_model=FormatList)
def list_formats(channels: ChannelsPart) -> Plain:
    """The formats a channel can have."""
    return Plain(FormatList(channels.formats()))


@router.get("/channels", response_model=ChannelList)
def list_channels(channels: ChannelsPart) -> Plain:
    """All channels. Secrets are masked."""
    return Plain(ChannelList(channels.all()))


@router.post("/channels", status_code=201, response_model=ChannelView)
def create_channel(body: NewChannel, channels: ChannelsPart) -> Plain:
    """Make a channel."""
    draft = Draft(body.name, body.config, _route(body.route), body.quiet_hours, body.enabled)
    return Plain(channels.create(body.format, draft), status_code=201)


@router.patch("/channels/{channel}", response_model=ChannelView, responses=MISSING)
def change_channel(channel: str, body: ChangedChannel, channels: ChannelsPart) -> Plain:
    """Change a channel, or switch it on or off."""
    return Plain(channels.change(channel, body.draft()))


@router.delete("/channels/{channel}", status_code=204, responses=MISSING)
def delete_channel(channel: str, channels: ChannelsPart) -> Response:
    """Forget a channel. What waits for it is not sent."""
    channels.delete(channel)
    return Response(status_code=204)


@router.post("/channels/{channel}/test", response_model=Tested, responses=MISSING)
def test_channel(channel: str, channels: ChannelsPart) -> Plain:
    """Send a test message now, and show what the receiver said."""
    return Plain(Tested(channels.test(channel)))
