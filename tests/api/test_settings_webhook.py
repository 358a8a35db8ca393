"""The webhook of the settings is a channel, and is switched off when it is taken out of them."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from monitor.settings import Settings
from monitor.storage.base import Channel
from tests.api.conftest import Running, running

SECRET = "whsec_" + "QUFB" * 8


def channels(folder: Path, **more: object) -> list[Channel]:
    found: list[Channel] = []

    def look(server: Running) -> None:
        with server.parts.database.read() as uow:
            found.extend(uow.channels.all())

    for server in running(Settings(port=0, data_dir=folder, **more)):  # type: ignore[arg-type]
        look(server)
    return found


def test_the_webhook_of_the_settings_comes_and_goes(tmp_path: Path) -> None:
    said = {"webhook_url": SecretStr("http://127.0.0.1:9/x"), "webhook_secret": SecretStr(SECRET)}
    (one,) = channels(tmp_path, **said)
    assert (one.format, one.enabled) == ("generic", True)
    assert one.config == {"url": "http://127.0.0.1:9/x", "secret": SECRET}
    (one,) = channels(tmp_path)
    assert not one.enabled
    (one,) = channels(tmp_path, **said)
    assert one.enabled
