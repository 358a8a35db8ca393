"""Slack, by an incoming webhook: Block Kit, and plain text where that is refused."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import as_json, cut, fit, json_headers, words_of

# https://docs.slack.dev/reference/block-kit/blocks: header 150 characters, section text 3,000, the
# address of a button 3,000, 50 blocks a message (of which this makes eleven at most).
HEADER_CHARS = 150
SECTION_CHARS = 3000
ADDRESS_CHARS = 3000
TEXT_CHARS = 3000
LINES_CHARS = 12_000
"""Far below what Slack takes in all, and packed into nine sections at most."""


def escape(text: str) -> str:
    """Slack's three: with them no mention and no link can be made
    (https://docs.slack.dev/messaging/formatting-message-text)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _size(text: str) -> int:
    return len(escape(text))


class Slack(Format):
    """A header, the lines as sections, and buttons to the alert and its run-book."""

    name: ClassVar[str] = "slack"
    label: ClassVar[str] = "Slack"
    about: ClassVar[str] = "An incoming webhook of a Slack app: api.slack.com/apps."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField(
            "url", "Webhook address", secret=True, help="https://hooks.slack.com/services/..."
        ),
    )

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """``text`` is what a phone's notification shows; the blocks are the message."""
        words = words_of(message)
        header = escape(cut(words.headline, HEADER_CHARS, _size))
        blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(header)}]
        lines = [cut(line, SECTION_CHARS, _size) for line in words.lines]
        for text in _packed(fit(lines, LINES_CHARS, _size)):
            blocks.append({"type": "section", "text": _marked(escape(text))})
        buttons = [
            _button(label, link)
            for label, link in (("Show the alert", words.link), ("What this means", words.runbook))
            if link and len(link) <= ADDRESS_CHARS
        ]
        if buttons:
            blocks.append({"type": "actions", "elements": buttons})
        return as_json(
            {
                "text": escape(cut(words.headline, TEXT_CHARS, _size)),
                "blocks": blocks,
                "unfurl_links": False,
                "unfurl_media": False,
            }
        )

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """To the webhook; its address is all the authority there is."""
        return Request(str(config["url"]), payload, json_headers(message_id))

    def fallback(self, payload: bytes) -> bytes:
        """The words alone, short enough for anything."""
        told = json.loads(payload)
        sections = [
            block["text"]["text"] for block in told.get("blocks", ()) if block["type"] == "section"
        ]
        lines = [html.unescape(text) for text in (told["text"], *sections)]
        return as_json({"text": escape("\n".join(fit(lines, TEXT_CHARS, _size)))})


def _packed(lines: list[str]) -> list[str]:
    """Neighbouring lines joined while a section holds them."""
    packed: list[str] = []
    for line in lines:
        joined = f"{packed[-1]}\n{line}" if packed else ""
        if packed and _size(joined) <= SECTION_CHARS:
            packed[-1] = joined
        else:
            packed.append(line)
    return packed


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _marked(text: str) -> dict[str, Any]:
    # ``verbatim``: addresses and names in foreign text do not become links or mentions.
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _button(label: str, link: str) -> dict[str, Any]:
    return {"type": "button", "text": _plain(label), "url": link}
