"""Microsoft Teams, by a workflow that takes an Adaptive Card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import as_json, cut, fit, json_headers, severity_of, words_of

# https://learn.microsoft.com/connectors/teams: about 28 KB a message, markup included; counted in
# UTF-16, as https://learn.microsoft.com/microsoftteams/platform/bots/how-to/format-your-bot-messages
# does. The rest of the card takes less than 8 KB.
LINES_BYTES = 18_000
HEADLINE_CHARS = 500

COLOURS = {"critical": "attention", "warning": "warning", "info": "default"}


def _size(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) + text.count('"') * 2 + text.count("\\") * 2


class Teams(Format):
    """A card of plain runs of text: they know no Markdown, so a name cannot format or link."""

    name: ClassVar[str] = "teams"
    label: ClassVar[str] = "Microsoft Teams (workflow)"
    about: ClassVar[str] = (
        "The channel's menu, Workflows, 'Send webhook alerts to a channel'; copy its address."
    )
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("url", "Workflow address", secret=True, help="https://...logic.azure.com/..."),
    )

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """``summary`` is what the notification shows."""
        words = words_of(message)
        headline = cut(words.headline, HEADLINE_CHARS)
        colour = "good" if message.moment == "resolved" else COLOURS[severity_of(message)]
        head = {"type": "TextRun", "text": headline, "weight": "bolder", "color": colour}
        lines = [{"type": "TextRun", "text": text} for text in fit(words.lines, LINES_BYTES, _size)]
        blocks = [{"type": "RichTextBlock", "inlines": [run]} for run in (head, *lines)]
        actions = [
            {"type": "Action.OpenUrl", "title": label, "url": link}
            for label, link in (("Show the alert", words.link), ("What this means", words.runbook))
            if link
        ]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "msteams": {"width": "Full"},
            "fallbackText": headline,
            "body": blocks,
            **({"actions": actions} if actions else {}),
        }
        content_type = "application/vnd.microsoft.card.adaptive"
        return as_json(
            {
                "type": "message",
                "summary": headline,
                "attachments": [{"contentType": content_type, "contentUrl": None, "content": card}],
            }
        )

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """To the workflow; its address carries the signature that lets us in."""
        return Request(str(config["url"]), payload, json_headers(message_id))
