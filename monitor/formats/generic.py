"""Plain JSON, signed after Standard Webhooks (https://www.standardwebhooks.com)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from standardwebhooks.webhooks import Webhook

from monitor.formats.base import Format, FormField, Message, Request
from trainer_hooks.wire import to_plain

PAYLOAD_VERSION = 1


class Generic(Format):
    """``{type, timestamp, data}``: everything known of the alert, and its words."""

    name: ClassVar[str] = "generic"
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("url", "Address", secret=True, help="Where to post to, https://..."),
        FormField("secret", "Signing secret", secret=True, help="whsec_ and base64"),
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
            },
        }
        text = json.dumps(to_plain(payload), allow_nan=False, ensure_ascii=False)
        return text.encode("utf-8", "replace")

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
