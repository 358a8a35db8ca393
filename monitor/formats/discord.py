"""Discord, by a channel's webhook."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import as_json, cut, fit, json_headers, severity_of, words_of

# https://discord.com/developers/docs/resources/webhook and .../message: content 2,000 characters,
# an embed's description 4,096, the value of its field 1,024, all embeds together 6,000.
CONTENT_CHARS = 2000
DESCRIPTION_CHARS = 4096
FIELD_CHARS = 1024

COLOURS = {"critical": 0xC62828, "warning": 0xB26A00, "info": 0x546E7A}
RESOLVED = 0x2E7D32

_MARKDOWN = re.compile(r"([\\*_~`|\[<])|^([#>+-])", re.MULTILINE)


def escape(text: str) -> str:
    """Markdown, masked links and ``<@...>`` mentions are text; colons and dots stay readable."""
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", text)


def _size(text: str) -> int:
    return len(escape(text))


class Discord(Format):
    """The headline as the message, which a phone shows, and the lines as an embed below it."""

    name: ClassVar[str] = "discord"
    label: ClassVar[str] = "Discord"
    about: ClassVar[str] = "Channel settings, Integrations, Webhooks, New Webhook, Copy URL."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField(
            "url", "Webhook address", secret=True, help="https://discord.com/api/webhooks/..."
        ),
    )

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """Nobody is mentioned, whatever a name says."""
        words = words_of(message)
        lines = fit(words.lines, DESCRIPTION_CHARS, _size)
        colour = RESOLVED if message.moment == "resolved" else COLOURS[severity_of(message)]
        embed: dict[str, Any] = {"description": escape("\n".join(lines)), "color": colour}
        if words.link:
            embed |= {"title": "Show the alert", "url": words.link}
        if words.runbook and len(words.runbook) <= FIELD_CHARS:
            embed["fields"] = [{"name": "What this means", "value": words.runbook}]
        payload: dict[str, Any] = {
            "content": escape(cut(words.headline, CONTENT_CHARS, _size)),
            "allowed_mentions": {"parse": []},
        }
        if lines or words.link:
            payload["embeds"] = [embed]
        return as_json(payload)

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """To the webhook; its address is all the authority there is."""
        return Request(str(config["url"]), payload, json_headers(message_id))

    def fallback(self, payload: bytes) -> bytes:
        """The headline alone."""
        told = json.loads(payload)
        return as_json({"content": told["content"], "allowed_mentions": {"parse": []}})
