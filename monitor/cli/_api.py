"""The HTTP API as the commands use it: address and read token from the environment."""

from __future__ import annotations

import argparse
import os
from typing import Any

import httpx

from monitor.errors import Unavailable, WatchkeeperError

DEFAULT_SERVER = "http://127.0.0.1:8765"


def add_server(parser: argparse.ArgumentParser) -> None:
    """Which server; its read token comes from the environment, never from the command line."""
    parser.add_argument(
        "--server",
        default=os.environ.get("WATCHKEEPER_SERVER") or DEFAULT_SERVER,
        help="address of the server (default: WATCHKEEPER_SERVER, or this machine)",
    )


class Api:
    """Asks one server. Its problems are raised as errors of ours."""

    def __init__(self, server: str) -> None:
        token = os.environ.get("WATCHKEEPER_READ_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=f"{server.rstrip('/')}/api/v1", headers=headers, timeout=20.0
        )
        self._server = server

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def __call__(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's JSON (None: it has none).

        Raises:
            WatchkeeperError: the server is away, or said no.
        """
        given = {name: value for name, value in query.items() if value is not None}
        try:
            answer = self._http.request(method, path, params=given, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(
                f"The server at {self._server} does not answer ({type(error).__name__}).",
                hint="Set WATCHKEEPER_SERVER or --server.",
            ) from None
        if answer.is_success:
            return answer.json() if answer.content else None
        raise _problem(answer)


def _problem(answer: httpx.Response) -> WatchkeeperError:
    try:
        said = answer.json()
        hint = str(said.get("hint") or "")
        if answer.status_code == 401:
            hint = "Set WATCHKEEPER_READ_TOKEN."
        return WatchkeeperError(str(said.get("detail") or said.get("title")), hint=hint)
    except (ValueError, AttributeError):
        return WatchkeeperError(f"The server said {answer.status_code}.")
