"""Whatever Apprise can reach, by one address of its own kind (https://github.com/caronc/apprise)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import as_json, cut, fit, severity_of, words_of

# Each service has limits of its own; the sender, which knows the service, drops further lines.
TITLE_CHARS = 250
TEXT_CHARS = 16_000

KINDS = {"critical": "failure", "warning": "warning", "info": "info"}


class AppriseFormat(Format):
    """Title, lines and kind; which of them a service shows, and how, Apprise knows."""

    name: ClassVar[str] = "apprise"
    label: ClassVar[str] = "Apprise (Telegram, Matrix, Pushover and many more)"
    about: ClassVar[str] = "An address as Apprise writes it: appriseit.com/services."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField(
            "url", "Apprise address", secret=True, help="tgram://..., matrix://..., pover://..."
        ),
    )
    sender: ClassVar = "apprise"
    needs: ClassVar[str] = "apprise"
    wake: ClassVar[str] = "pip install 'watchkeeper[notify]'"

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """JSON for our own sender."""
        words = words_of(message)
        over = message.moment in ("resolved", "acknowledged")
        return as_json(
            {
                "title": cut(words.headline, TITLE_CHARS),
                "lines": fit(words.whole, TEXT_CHARS),
                "kind": "success" if over else KINDS[severity_of(message)],
            }
        )

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """The address says it all."""
        return Request(str(config["url"]), payload, {})
