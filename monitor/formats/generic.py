"""Plain JSON, signed after Standard Webhooks (https://www.standardwebhooks.com)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from standardwebhooks.webhooks import Webhook

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import as_json

PAYLOAD_VERSION = 1


class Generic(Format):
    """``{type, timestamp, data}``: everything known of the alert, and its words."""

    name: ClassVar[str] = "generic"
    label: ClassVar[str] = "Webhook (Standard Webhooks)"
    about: ClassVar[str] = "Any program of yours that takes a POST. It can check the signature."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("url", "Address", secret=True, help="Where to post to, https://..."),
        FormField(
            "secret",
            "Signing secret",
            secret=True,
            help="whsec_ and 24 to 64 random bytes in base64; the receiver knows it too",
        ),
    )

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """UTF-8 JSON; non-finite numbers by their names."""
        payload = {
            "type": f"alert.{message.moment}",
            "timestamp": datetime.fromtimestamp(message.at, UTC).isoformat(),
            "data": {
                "v": PAYLOAD_VERSION,
                "headline": message.text.headline,
                "text": str(message.text),
                "link": message.text.link,
                "runbook": message.text.runbook,
                "run": message.run,
                "alert": message.alert,
                **({"others": list(message.others)} if message.others else {}),
            },
        }
        return as_json(payload)

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """The signature covers id, instant and body; the instant is that of this very try."""
        instant = datetime.fromtimestamp(int(at), UTC)
        signature = Webhook(str(config["secret"])).sign(message_id, instant, payload.decode())
        headers = {
            "content-type": "application/json",
            "user-agent": "watchkeeper",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(at)),
            "webhook-signature": signature,
        }
        return Request(str(config["url"]), payload, headers)
