"""The running server says elsewhere that it lives: a monitor dies with its box."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from monitor.settings import Settings
from tests.api.conftest import running
from tests.storage.test_delivery import Receiver, receiver

__all__ = ["receiver"]


def test_a_server_that_works_pings_at_once_and_logs_no_address(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = Settings(
        port=0, data_dir=tmp_path, ping_url=SecretStr(receiver.url),
        webhook_allow_private=["127.0.0.0/8"],
    )  # fmt: skip
    for _ in running(settings):
        end = time.monotonic() + 20
        while not receiver.got:
            assert time.monotonic() < end, "no ping came"
            time.sleep(0.02)
    assert [body for _, body in receiver.got] == [b""]
    assert "marker-of-the-secret" not in caplog.text
