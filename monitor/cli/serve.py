"""``watchkeeper serve``: run the server in the foreground until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
from contextlib import closing, suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from monitor.cli.options import add_settings, read_settings
from monitor.errors import UnsafeSettings, WatchkeeperError
from monitor.settings import Settings

GRACE_S = 2
BACKLOG = 512


def arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Listen, say so on stdout, serve; 0 after an orderly stop."""
    settings = read_settings(options)
    settings.refuse_unsafe()
    set_up_logs(settings.log_level)
    listening = listen(settings)
    settings = settings.model_copy(update={"port": listening.getsockname()[1]})
    from monitor.app import create_app

    app = create_app(settings)
    server = Server(app, settings)
    with closing(listening), suppress(SystemExit):  # uvicorn's word for a start that failed
        server.run(sockets=[listening])
    if server.started:
        return 0
    failure = getattr(app.state, "failure", None)
    if isinstance(failure, WatchkeeperError):
        raise failure
    return 1


class Server(uvicorn.Server):
    """Says where it listens once it does, and tells open streams goodbye when asked to stop."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=75,
            proxy_headers=False,
            ws="none",
        )
        super().__init__(config)
        self._app = app
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(f"Watchkeeper listens on {address(self._settings)}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Open streams say goodbye first; they would hold the stop up otherwise."""
        parts = getattr(self._app.state, "parts", None)
        if parts is not None:
            parts.live.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As the base does, without raising the signal again: an orderly stop is status 0."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def address(settings: Settings) -> str:
    """How a browser reaches it."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def listen(settings: Settings) -> socket.socket:
    """A bound socket, so that port 0 is known before anybody is told.

    Raises:
        UnsafeSettings: the address is not ours, or the port is taken.
    """
    try:
        family, kind, proto, _, place = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as error:
        raise UnsafeSettings(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}.",
            hint="Choose another with --host and --port.",
        ) from None
    return listening


def set_up_logs(level: str) -> None:
    """One line an event on standard error."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    for name in ("httpx", "httpcore", "alembic", "sqlalchemy"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # We log those ourselves.
