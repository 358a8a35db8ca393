"""``create_app``: the only place where the parts meet.

The lifespan opens the database, brings it up to date, starts the workers, and stops them again.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware

from monitor import resources
from monitor.api.application import Application
from monitor.api.auth import Keys
from monitor.api.deps import Parts
from monitor.api.guard import Guard
from monitor.api.pages import needs_login, pages_router
from monitor.api.problems import install
from monitor.api.routes import ROUTERS
from monitor.api.static import Static
from monitor.clock import wall_s
from monitor.errors import UnsafeSettings, WatchkeeperError
from monitor.senders.apprise import AppriseSender
from monitor.senders.http import HttpSender
from monitor.senders.smtp import SmtpSender
from monitor.services.channels import Channels, Sender
from monitor.services.delivery import Delivery
from monitor.services.detection import Detection
from monitor.services.digest import Digest
from monitor.services.gates import Gates
from monitor.services.ingest import Ingest
from monitor.services.keepalive import KeepAlive
from monitor.services.last_words import LastWords
from monitor.services.latest import Latest
from monitor.services.live import Live
from monitor.services.overview import Overview
from monitor.services.pinging import Ping
from monitor.services.presence import Presence
from monitor.services.reading import Reading
from monitor.services.scrape import Scrape
from monitor.services.sealing import Sealer
from monitor.services.ticks import Ticks
from monitor.services.tuning import Tuner
from monitor.services.workers import Supervisor, Worker
from monitor.settings import Settings
from monitor.storage import migrate
from monitor.storage.base import Channel, Database, UnitOfWork
from monitor.storage.engine import open_database

_log = logging.getLogger("monitor.app")

PING_EVERY_S = 60.0
PACKED_BYTES = 4_096
PACKED_LEVEL = 4
"""Larger answers are packed where the asker takes it; higher levels cost more than they save."""
WEBHOOK_CHANNEL = "webhook"
NO_TELEMETRY: TelemetryConfig = {
    "auto_configure": False,
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
}


def create_app(settings: Settings) -> FastAPI:
    """The server as an ASGI application.

    Raises:
        UnsafeSettings: it would be open to strangers.
    """
    settings.refuse_unsafe()
    app = Application(
        title="Watchkeeper",
        version=program_version(),
        summary="Watches language-model training runs.",
        lifespan=_lifespan(settings),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.state.keys = Keys(_secret(settings.ingest_token), _secret(settings.read_token))
    app.add_middleware(GZipMiddleware, minimum_size=PACKED_BYTES, compresslevel=PACKED_LEVEL)
    app.add_middleware(
        Guard,
        names=[settings.host, *settings.allowed_hosts, *_base_host(settings)],
        prefix=urlsplit(settings.base_url).path,
    )
    install(app)
    for router in ROUTERS:
        app.include_router(router)
    web = resources.web_folder()
    pages = pages_router(web, resources.docs_folder())
    app.include_router(pages, dependencies=[Depends(needs_login)])
    app.mount("/static", Static(directory=web / "static"))
    return app


def program_version() -> str:
    """The installed version; "0" in a tree that is not installed."""
    try:
        return version("watchkeeper")
    except PackageNotFoundError:
        return "0"


def database_address(settings: Settings) -> str:
    """PostgreSQL where set, else a file in the data folder."""
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    return f"sqlite:///{settings.data_dir.absolute() / 'watchkeeper.db'}"


def migrate_database(settings: Settings) -> str:
    """Bring the database to this program's schema; the revision it is at then."""
    database = open_database(database_address(settings))
    try:
        migrate.upgrade(database)
        return migrate.revision(database) or ""
    finally:
        database.close()


def assemble(settings: Settings, database: Database) -> Parts:
    """All parts over an open database, none of them started."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    latest = Latest()
    overview = Overview(latest, wall_s, settings.base_url)
    live = Live(database, overview)
    senders = _senders(settings.webhook_allow_private)
    base_url = settings.base_url
    digest = Digest(database, wall_s, overview, settings.digest_at, base_url)
    sending = Delivery(
        database,
        wall_s,
        owner,
        senders["http"],
        senders=senders,
        base_url=base_url,
        gates=Gates(settings.quiet_hours, settings.digest_at),
        digest=digest.words,
    )
    renewing = KeepAlive(database, wall_s, senders, base_url=base_url)
    delivery = Worker("delivery", sending.run_once, 1.0)
    digest.told = delivery.wake
    detection = Detection(database, wall_s, owner, told=delivery.wake, entries_per_commit=64)
    sealer = Sealer(database, wall_s, owner)
    ingest = Ingest(database, wall_s)
    workers = Supervisor(
        (
            Worker("detection", detection.run_all, 1.0, follows_log=True, pressed=ingest.pressed),
            Worker("sealer", sealer.run_once, 1.0, follows_log=True, pressed=ingest.pressed),
            delivery,
            Worker("keepalive", renewing.run_once, 5.0),
            Worker("ticks", Ticks(database, owner).run_once, 1.0),
            Worker("presence", Presence(database).run_once, 5.0),
            Worker("digest", digest.run_once, 20.0),
        )
    )
    watchers = _watchers(settings, database, senders, workers)
    workers = Supervisor((*workers.workers, *watchers))
    scrape = Scrape(database, latest, workers.health, live.__len__, wall_s, program_version())
    return Parts(
        database=database,
        ingest=ingest,
        reading=Reading(database),
        overview=overview,
        live=live,
        digest=digest,
        scrape=scrape,
        channels=Channels(database, wall_s, senders, fixed=_fixed_channels(settings)),
        tuner=Tuner(database, wall_s),
        workers=workers,
        clock=wall_s,
        at_stop=(detection.close,),
    )


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            parts = await run_in_threadpool(_start, settings)
        except WatchkeeperError as error:
            app.state.failure = error
            raise
        app.state.parts = parts
        try:
            yield
        finally:
            await run_in_threadpool(_stop, parts)

    return lifespan


def _start(settings: Settings) -> Parts:
    database = _open(settings)
    try:
        database.begin_serving()
        parts = assemble(settings, database)
        database.write(lambda uow: _save_webhook(uow, settings))
        database.on_append(parts.live.appended)
        database.on_append(parts.workers.wake)
        parts.workers.start()
    except BaseException:
        database.close()
        raise
    return parts


def _open(settings: Settings) -> Database:
    """The database at this program's schema.

    Raises:
        UnsafeSettings: its address cannot be understood, or it is behind and may not be migrated.
    """
    try:
        database = open_database(database_address(settings))
    except ValueError:
        raise UnsafeSettings(
            "WATCHKEEPER_DATABASE_URL cannot be understood.",
            hint="It looks like postgresql://user:password@host/name.",
        ) from None
    try:
        if settings.migrate:
            migrate.upgrade(database)
        else:
            migrate.require_current(database)
    except RuntimeError as error:
        database.close()
        raise UnsafeSettings(f"{error}.") from None
    except BaseException:
        database.close()
        raise
    return database


def _stop(parts: Parts) -> None:
    parts.live.close()
    parts.workers.stop()
    for close in parts.at_stop:
        try:
            close()
        except WatchkeeperError as error:
            _log.warning("while stopping: %s", error.detail)
    parts.database.close()


def _watchers(
    settings: Settings, database: Database, senders: Mapping[str, Sender], workers: Supervisor
) -> list[Worker]:
    """Those who tell of the server's own end: that the disk is full, and that it still lives."""
    words = LastWords(
        database,
        wall_s,
        senders,
        workers.health,
        partial(_free_bytes, settings),
        socket.gethostname(),
    )
    watchers = [Worker("disk", words.run_once, 10.0)]
    url = _secret(settings.ping_url)
    if url:
        ping = Ping(url, senders["http"], workers.health)
        watchers.append(Worker("ping", ping.run_once, PING_EVERY_S))
    return watchers


def _free_bytes(settings: Settings) -> int | None:
    """Room where the embedded database lies; None: it is a PostgreSQL elsewhere."""
    if settings.database_url is not None:
        return None
    try:
        return shutil.disk_usage(settings.data_dir).free
    except OSError:
        return None


def _senders(allow_private: Sequence[str]) -> dict[str, Sender]:
    return {
        "http": HttpSender(allow_private),
        "smtp": SmtpSender(allow_private),
        "apprise": AppriseSender(allow_private),
    }


def _fixed_channels(settings: Settings) -> tuple[str, ...]:
    return (WEBHOOK_CHANNEL,) if settings.webhook_url is not None else ()


def _save_webhook(uow: UnitOfWork, settings: Settings) -> None:
    """The webhook of the settings as a channel; without one, an earlier one is switched off."""
    if settings.webhook_url is not None and settings.webhook_secret is not None:
        config = {
            "url": settings.webhook_url.get_secret_value(),
            "secret": settings.webhook_secret.get_secret_value(),
        }
        uow.channels.save(Channel(WEBHOOK_CHANNEL, "webhook", "generic", config))
    elif any(channel.id == WEBHOOK_CHANNEL for channel in uow.channels.all()):
        uow.channels.disable(WEBHOOK_CHANNEL, "no longer in the settings")


def _secret(value: object) -> str | None:
    reveal = getattr(value, "get_secret_value", None)
    return reveal() if reveal is not None else None


def _base_host(settings: Settings) -> list[str]:
    host = urlsplit(settings.base_url).hostname
    return [host] if host else []
