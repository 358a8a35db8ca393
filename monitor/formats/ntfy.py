"""ntfy, published as JSON (https://docs.ntfy.sh/publish/#publish-as-json)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import (
    as_json,
    authorization,
    cut,
    fit,
    in_bytes,
    json_headers,
    severity_of,
    words_of,
)

# https://docs.ntfy.sh/publish/#limitations: a message of more than 4,096 bytes becomes a file.
MESSAGE_BYTES = 4096
TITLE_BYTES = 250

PRIORITIES = {"critical": 5, "warning": 4, "info": 3}
TAGS = {"critical": "rotating_light", "warning": "warning", "info": "information_source"}


class Ntfy(Format):
    """The headline as the title; a critical alert rings through a phone's silence."""

    name: ClassVar[str] = "ntfy"
    label: ClassVar[str] = "ntfy"
    about: ClassVar[str] = "Choose a topic nobody can guess, and subscribe to it in the ntfy app."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("topic", "Topic", secret=True, help="Whoever knows it can read along"),
        FormField("server", "Server", required=False, default="https://ntfy.sh"),
        FormField("authorization", "Access token", secret=True, required=False, help="tk_..."),
    )

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """Without the topic, which is as good as a password."""
        words = words_of(message)
        over = message.moment in ("resolved", "acknowledged")
        severity = severity_of(message)
        payload: dict[str, Any] = {
            "title": cut(words.headline, TITLE_BYTES, in_bytes),
            "message": "\n".join(fit(words.lines, MESSAGE_BYTES, in_bytes)) or words.headline[:200],
            "priority": 3 if over else PRIORITIES[severity],
            "tags": ["white_check_mark" if over else TAGS[severity]],
        }
        if words.link:
            payload["click"] = words.link
        if words.runbook:
            what = {"action": "view", "label": "What this means", "url": words.runbook}
            payload["actions"] = [what]
        return as_json(payload)

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """To the server's root, as JSON wants it; the topic goes in here."""
        server = str(config.get("server") or "https://ntfy.sh").rstrip("/") + "/"
        body = as_json({"topic": str(config["topic"]), **json.loads(payload)})
        return Request(server, body, {**json_headers(message_id), **authorization(config)})
