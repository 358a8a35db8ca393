"""E-mail: the words as plain text, the facts as JSON beside them. No HTML, so nothing to inject."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, getaddresses
from typing import Any, ClassVar

from monitor.formats.base import Format, FormField, Message, Request
from monitor.formats.text import cut, fit, in_bytes, words_of
from trainer_hooks.wire import to_plain

# RFC 5322 2.1.1 bounds lines, which the policy folds; servers bound the whole (RFC 5321 4.5.3.1.7
# asks them to take 64 KiB at least, so that is what we keep to).
TEXT_BYTES = 16_000
FACTS_BYTES = 24_000
SUBJECT_CHARS = 200

PORTS = {"starttls": "587", "tls": "465", "none": "25"}


class Email(Format):
    """One thread an alert: later messages refer to the first."""

    name: ClassVar[str] = "email"
    label: ClassVar[str] = "E-mail (SMTP)"
    about: ClassVar[str] = "The outgoing server of your mail provider, and a password for it."
    fields: ClassVar[tuple[FormField, ...]] = (
        FormField("to", "To", help="One address or several, with commas between them"),
        FormField("sender", "From"),
        FormField("host", "Server", help="smtp.example.org"),
        FormField(
            "security",
            "Encryption",
            required=False,
            choices=("starttls", "tls", "none"),
            default="starttls",
            help="starttls is usual on port 587, tls on 465",
        ),
        FormField("port", "Port", required=False, help="587, 465 or 25, after the encryption"),
        FormField("user", "User name", required=False),
        FormField("password", "Password", secret=True, required=False),
    )
    sender: ClassVar = "smtp"

    def render(self, message: Message, config: Mapping[str, Any]) -> bytes:
        """The whole message as it goes over the wire."""
        words = words_of(message)
        thread = f"<{message.alert.get('id') or message.id}@watchkeeper>"
        mail = EmailMessage(policy=SMTP)
        mail["From"] = _addresses(str(config["sender"]))
        mail["To"] = _addresses(str(config["to"]))
        mail["Subject"] = cut(words.headline, SUBJECT_CHARS)
        mail["Date"] = format_datetime(datetime.fromtimestamp(int(message.at), UTC))
        mail["Message-ID"] = f"<{message.id}@watchkeeper>"
        mail["References"] = thread
        mail["Auto-Submitted"] = "auto-generated"
        lines = fit(words.whole, TEXT_BYTES, in_bytes)
        mail.set_content("\n".join((words.headline, "", *lines)) + "\n")
        facts = _facts(message)
        if facts:
            mail.add_attachment(facts, subtype="plain", filename="alert.json")
            # Drawn at random otherwise, and the same message shall always be the same bytes.
            mail.set_boundary(f"=_{message.id}")
        return mail.as_bytes()

    def request(
        self, message_id: str, payload: bytes, config: Mapping[str, Any], *, at: float
    ) -> Request:
        """The envelope; the password is in it, and never in the bytes."""
        security = str(config.get("security") or "starttls")
        port = str(config.get("port") or PORTS[security])
        envelope = {
            "security": security,
            "user": str(config.get("user") or ""),
            "password": str(config.get("password") or ""),
            "from": _addresses(str(config["sender"]))[0].addr_spec,
            "to": ",".join(one.addr_spec for one in _addresses(str(config["to"]))),
        }
        return Request(f"smtp://{config['host']}:{int(port)}", payload, envelope)


def _addresses(text: str) -> list[Address]:
    """Addresses with their display names.

    Raises:
        ValueError: there is none, or one is none.
    """
    found = [Address(name, addr_spec=spec) for name, spec in getaddresses([text]) if spec]
    if not found or any(not one.domain for one in found):
        raise ValueError("not an e-mail address")
    return found


def _facts(message: Message) -> str:
    """The alert as JSON for programs that read mail; nothing where it would be too long."""
    if not message.alert:
        return ""
    facts = {"moment": message.moment, "run": message.run, "alert": message.alert}
    text = json.dumps(to_plain(facts), allow_nan=False, indent=1)
    return f"{text}\n" if len(text) <= FACTS_BYTES else ""
