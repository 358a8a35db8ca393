"""A real server on a free port, in a thread of this process, on each database."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from monitor.api.deps import Parts
from monitor.app import create_app
from monitor.cli.serve import Server, address, listen
from monitor.settings import Settings
from tests.fixtures.batches import body
from trainer_hooks.wire import Batch


@dataclass(slots=True)
class Running:
    """A server that answers at ``url``."""

    url: str
    app: FastAPI
    client: httpx.Client

    @property
    def parts(self) -> Parts:
        parts: Parts = self.app.state.parts
        return parts

    def send(self, batch: Batch, **headers: str) -> httpx.Response:
        return self.client.post(
            "/api/v1/batches",
            content=body(batch),
            headers={"content-type": "application/json", **headers},
        )

    def get(self, path: str, **more: Any) -> Any:
        answer = self.client.get(path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()


def settings_for(database_url: str, folder: Path, **more: Any) -> Settings:
    if database_url.startswith("sqlite"):
        return Settings(port=0, data_dir=folder, **more)
    return Settings(port=0, database_url=SecretStr(database_url), **more)


def running(settings: Settings) -> Generator[Running]:
    listening = listen(settings)
    settings = settings.model_copy(update={"port": listening.getsockname()[1]})
    app = create_app(settings)
    server = Server(app, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    end = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        assert thread.is_alive(), getattr(app.state, "failure", "the server ended")
        time.sleep(0.01)
    try:
        with httpx.Client(base_url=address(settings), timeout=20, trust_env=False) as client:
            yield Running(address(settings), app, client)
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        assert not thread.is_alive()


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Generator[Running]:
    """An open server: once on SQLite, once on PostgreSQL."""
    yield from running(settings_for(database_url, tmp_path))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """One open server for a whole file, where the database does not matter."""
    yield from running(Settings(port=0, data_dir=tmp_path_factory.mktemp("site")))
