"""Alerts pushed to a Prometheus Alertmanager, which then routes, groups and silences them.

https://prometheus.io/docs/alerting/latest/clients/. A client must send a firing alert again and
again; that is done beside the outbox, by ``monitor/services/keepalive.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from monitor.formats.alertmanager import annotations_of, ends_at, labels_of, starts_at
from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import as_json, authorization, json_headers, words_of

PATH = "/api/v2/alerts"


class AlertmanagerPush(Format):
    """A list of one alert. Without ``endsAt`` while it fires: Alertmanager then forgets it by
    itself (``resolve_timeout``, 5 minutes) should we fall silent."""

    name: ClassVar[str] = "alertmanager_push"
    label: ClassVar[str] = "Alertmanager (push)"
    about: ClassVar[str] = "Your own Alertmanager, as http://alertmanager:9093."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("url", "Address", secret=True, help="Without /api/v2/alerts"),
        FormField("authorization", "Authorization", secret=True, required=False, help="Bearer ..."),
    )
    lasting: ClassVar[bool] = True
    renew_every_s: ClassVar[float] = 60.0

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """The same labels from its opening to its end."""
        return as_json([_alert(message)])

    def renew(self, messages: Sequence[Message], config: Mapping[str, Any]) -> bytes:
        """All of them in one post."""
        return as_json([_alert(message) for message in messages])

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """To the API below the address, whether that was given with it or not."""
        base = str(config["url"]).rstrip("/").removesuffix(PATH)
        headers = {**json_headers(message_id), **authorization(config)}
        return Request(base + PATH, payload, headers)


def _alert(message: Message) -> dict[str, Any]:
    words, over = words_of(message), ends_at(message)
    return {
        "labels": labels_of(message),
        "annotations": annotations_of(message),
        "startsAt": starts_at(message),
        **({"endsAt": over} if over else {}),
        **({"generatorURL": words.link} if words.link else {}),
    }
