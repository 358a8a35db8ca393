"""A webhook receiver in a process of its own, as a stranger would write one.

It checks signatures with the ``standardwebhooks`` library and with nothing of ours. The secret
comes in the environment; the port is the first line on stdout; ``GET /`` gives the counts.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

SECRET_VARIABLE = "RECEIVER_SECRET"  # noqa: S105 - the name of a variable
MAX_BODY_BYTES = 1024 * 1024


class Counts:
    """Messages by id: a message that is sent again is delivered once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: dict[str, bytes] = {}
        self._forged = 0
        self._changed = 0

    def deliver(self, message_id: str, body: bytes) -> None:
        """Note a verified message; a repeat must have the very same bytes."""
        with self._lock:
            if self._bodies.setdefault(message_id, body) != body:
                self._changed += 1

    def refuse(self) -> None:
        """Note a message whose signature is wrong."""
        with self._lock:
            self._forged += 1

    def read(self) -> dict[str, int]:
        """``delivered`` messages, ``forged`` ones, and repeats whose bytes had ``changed``."""
        with self._lock:
            return {
                "delivered": len(self._bodies),
                "forged": self._forged,
                "changed": self._changed,
            }


class Handler(BaseHTTPRequestHandler):
    """POST takes a message, GET tells the counts."""

    protocol_version = "HTTP/1.1"
    counts: Counts
    webhook: Webhook

    def do_POST(self) -> None:
        length = min(int(self.headers.get("content-length") or 0), MAX_BODY_BYTES)
        body = self.rfile.read(length)
        headers: Mapping[str, str] = {name.lower(): text for name, text in self.headers.items()}
        try:
            self.webhook.verify(body, dict(headers))
        except WebhookVerificationError:
            self.counts.refuse()
            self._answer(401, {"error": "the signature is wrong"})
            return
        self.counts.deliver(headers["webhook-id"], body)
        self._answer(200, {"ok": True})

    def do_GET(self) -> None:
        self._answer(200, self.counts.read())

    def _answer(self, status: int, plain: Mapping[str, object]) -> None:
        body = json.dumps(plain).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: what was delivered is asked for, not read from a log."""


def main() -> None:
    """Serve on a free port of this machine until killed."""
    Handler.counts = Counts()
    Handler.webhook = Webhook(os.environ[SECRET_VARIABLE])
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
