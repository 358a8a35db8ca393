"""What routes are handed: the parts of the running server, by type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from monitor.clock import Clock
from monitor.domain.run import Run
from monitor.errors import Gone, NotFound
from monitor.services.channels import Channels
from monitor.services.digest import Digest
from monitor.services.ingest import Ingest
from monitor.services.live import Live
from monitor.services.overview import Overview
from monitor.services.reading import Reading
from monitor.services.scrape import Scrape
from monitor.services.tuning import Tuner
from monitor.services.workers import Supervisor
from monitor.storage.base import Database, UnitOfWork


@dataclass(slots=True)
class Parts:
    """The running server's parts, put together by ``app`` and torn down by it.

    ``at_stop`` is called when the workers have stopped and the database is still open.
    """

    database: Database
    ingest: Ingest
    reading: Reading
    overview: Overview
    live: Live
    digest: Digest
    scrape: Scrape
    channels: Channels
    tuner: Tuner
    workers: Supervisor
    clock: Clock
    at_stop: tuple[Callable[[], None], ...] = ()


def parts(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


# Coroutines, though they wait for nothing: a plain function would be sent through the thread pool.


async def _database(request: Request) -> Database:
    return parts(request).database


async def _ingest(request: Request) -> Ingest:
    return parts(request).ingest


async def _reading(request: Request) -> Reading:
    return parts(request).reading


async def _overview(request: Request) -> Overview:
    return parts(request).overview


async def _digest(request: Request) -> Digest:
    return parts(request).digest


async def _live(request: Request) -> Live:
    return parts(request).live


async def _scrape(request: Request) -> Scrape:
    return parts(request).scrape


async def _channels(request: Request) -> Channels:
    return parts(request).channels


async def _tuner(request: Request) -> Tuner:
    return parts(request).tuner


async def _workers(request: Request) -> Supervisor:
    return parts(request).workers


async def _clock(request: Request) -> Clock:
    return parts(request).clock


DatabasePart = Annotated[Database, Depends(_database)]
IngestPart = Annotated[Ingest, Depends(_ingest)]
ReadingPart = Annotated[Reading, Depends(_reading)]
OverviewPart = Annotated[Overview, Depends(_overview)]
DigestPart = Annotated[Digest, Depends(_digest)]
LivePart = Annotated[Live, Depends(_live)]
ScrapePart = Annotated[Scrape, Depends(_scrape)]
ChannelsPart = Annotated[Channels, Depends(_channels)]
TunerPart = Annotated[Tuner, Depends(_tuner)]
WorkersPart = Annotated[Supervisor, Depends(_workers)]
WallClock = Annotated[Clock, Depends(_clock)]


def known_run(uow: UnitOfWork, run: str) -> Run:
    """The run.

    Raises:
        NotFound: there is none of this id.
        Gone: it was deleted.
    """
    found = uow.runs.get(run)
    if found is None:
        raise NotFound("There is no such run.")
    if found.deleted:
        raise Gone("This run was deleted.")
    return found
