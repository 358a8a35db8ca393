"""PagerDuty, Events API v2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import (
    Words,
    as_json,
    cut,
    fit,
    instant,
    json_headers,
    severity_of,
    words_of,
)

# https://developer.pagerduty.com/docs/send-alert-event: summary 1,024 characters, dedup_key 255.
# An event may have 512 KB (its overview page says); the evidence is left out long before.
SUMMARY_CHARS = 1024
KEY_CHARS = 255
TEXT_CHARS = 16_000
EVIDENCE_BYTES = 64_000

ACTIONS = {"acknowledged": "acknowledge", "resolved": "resolve"}
HOSTS = {"us": "events.pagerduty.com", "eu": "events.eu.pagerduty.com"}


class PagerDuty(Format):
    """One incident an alert: opened and reminded by ``trigger``, and followed to its end."""

    name: ClassVar[str] = "pagerduty"
    label: ClassVar[str] = "PagerDuty"
    about: ClassVar[str] = "A service's Integrations tab, Events API v2: the integration key."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("routing_key", "Integration key", secret=True, help="32 characters"),
        FormField("region", "Region", required=False, choices=("us", "eu"), default="us"),
    )
    lasting: ClassVar[bool] = True

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """Without the integration key."""
        action = ACTIONS.get(message.moment, "trigger")
        key = str(message.alert.get("id") or message.id)[:KEY_CHARS]
        event: dict[str, Any] = {"event_action": action, "dedup_key": key}
        if action == "trigger":
            event |= _details(message, words_of(message))
        return as_json(event)

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """The key goes in here, and never into what is stored."""
        body = as_json({"routing_key": str(config["routing_key"]), **json.loads(payload)})
        host = HOSTS[str(config.get("region") or "us")]
        return Request(f"https://{host}/v2/enqueue", body, json_headers(message_id))


def _details(message: Message, words: Words) -> dict[str, Any]:
    alert, run = message.alert, message.run
    evidence = alert.get("evidence") or {}
    if len(as_json(evidence)) > EVIDENCE_BYTES:
        evidence = {}
    links = (("Show the alert", words.link), ("What this means", words.runbook))
    return {
        "client": "Watchkeeper",
        **({"client_url": words.link} if words.link else {}),
        "links": [{"href": link, "text": label} for label, link in links if link],
        "payload": {
            "summary": cut(words.headline, SUMMARY_CHARS),
            "source": cut(str(run.get("name") or run.get("id") or "watchkeeper"), KEY_CHARS),
            "severity": severity_of(message),
            "timestamp": instant(alert.get("opened_at") or message.at),
            "component": cut(str(alert.get("subject") or ""), KEY_CHARS),
            "group": cut(str(run.get("id") or ""), KEY_CHARS),
            "class": str(alert.get("detector") or ""),
            "custom_details": {
                "text": "\n".join(fit(words.whole, TEXT_CHARS)),
                "onset_step": alert.get("onset_step"),
                "evidence": evidence,
            },
        },
    }
