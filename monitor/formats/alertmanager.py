"""The payload Prometheus' Alertmanager posts to a webhook receiver (version 4).

For the many programs that understand it already:
https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import (
    as_json,
    authorization,
    cut,
    fit,
    instant,
    json_headers,
    one_line,
    severity_of,
    words_of,
)

NEVER = "0001-01-01T00:00:00Z"
"""Alertmanager's way to say that it is not over."""
LABEL_CHARS = 1024
TEXT_CHARS = 16_000
MOST_ALERTS = 100
"""Of one message; the rest is counted in ``truncatedAlerts``."""


class Alertmanager(Format):
    """A group: one alert, or those of one outage in many runs."""

    name: ClassVar[str] = "alertmanager"
    label: ClassVar[str] = "Alertmanager webhook (payload version 4)"
    about: ClassVar[str] = "Any receiver that Alertmanager's webhook_config could post to."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("url", "Address", secret=True),
        FormField("authorization", "Authorization", secret=True, required=False, help="Bearer ..."),
    )

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """Acknowledging is a note on an alert that goes on firing."""
        others = [replace(message, alert=one["alert"], run=one["run"]) for one in message.others]
        alerts = [_alert(one) for one in (message, *others[: MOST_ALERTS - 1])]
        common = _common([one["labels"] for one in alerts])
        grouped = {name: common[name] for name in ("alertname", "run") if name in common}
        key = ", ".join(f'{name}="{value}"' for name, value in grouped.items())
        return as_json(
            {
                "version": "4",
                "groupKey": f"{{}}:{{{key}}}",
                "truncatedAlerts": 1 + len(others) - len(alerts),
                "status": _status(message),
                "receiver": "watchkeeper",
                "groupLabels": grouped,
                "commonLabels": common,
                "commonAnnotations": _common([one["annotations"] for one in alerts]),
                "externalURL": _root(words_of(message).link),
                "alerts": alerts,
            }
        )

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """With the authorization header, where one is set."""
        headers = {**json_headers(message_id), **authorization(config)}
        return Request(str(config["url"]), payload, headers)


def _alert(message: Message) -> dict[str, Any]:
    labels = labels_of(message)
    return {
        "status": _status(message),
        "labels": labels,
        "annotations": annotations_of(message),
        "startsAt": starts_at(message),
        "endsAt": ends_at(message) or NEVER,
        "generatorURL": words_of(message).link,
        "fingerprint": _fingerprint(labels),
    }


def _common(many: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What all of them have alike."""
    return {
        name: value
        for name, value in many[0].items()
        if all(one.get(name) == value for one in many)
    }


def labels_of(message: Message) -> dict[str, str]:
    """What names the alert: the same from its opening to its end. Empty ones are left out."""
    alert, run = message.alert, message.run
    found = {
        "alertname": alert.get("detector") or "watchkeeper",
        "run": run.get("id"),
        "run_name": run.get("name"),
        "subject": alert.get("subject"),
        "severity": severity_of(message),
        "source": "watchkeeper",
    }
    return {name: cut(one_line(str(text)), LABEL_CHARS) for name, text in found.items() if text}


def annotations_of(message: Message) -> dict[str, str]:
    """What is said of it."""
    words = words_of(message)
    found = {
        "summary": words.headline,
        "description": "\n".join(fit(words.lines, TEXT_CHARS)),
        "runbook_url": words.runbook,
        "link": words.link,
    }
    if message.moment == "acknowledged":
        found["acknowledged_by"] = one_line(str(message.alert.get("acknowledged_by") or "somebody"))
    return {name: text for name, text in found.items() if text}


def starts_at(message: Message) -> str:
    """By the server's clock, as the end is: a run's own clock may be off."""
    return instant(message.alert.get("opened_at") or message.at)


def ends_at(message: Message) -> str:
    """Empty while it goes on; never before its start."""
    if message.moment != "resolved":
        return ""
    start = float(message.alert.get("opened_at") or message.at)
    return instant(max(float(message.alert.get("resolved_at") or message.at), start))


def _status(message: Message) -> str:
    return "resolved" if message.moment == "resolved" else "firing"


def _fingerprint(labels: Mapping[str, str]) -> str:
    text = "\xff".join(f"{name}\xff{labels[name]}" for name in sorted(labels))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _root(link: str) -> str:
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}{parts.path.partition('/alerts/')[0]}" if link else ""
