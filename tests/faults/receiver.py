"""A webhook receiver in the test's process that checks signatures and can hold an answer back."""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError


@dataclass(frozen=True, slots=True)
class Message:
    """One accepted POST; a retry has the same id."""

    id: str
    body: bytes


class Receiver:
    """``forged``: POSTs with a wrong signature; ``changed``: retries that came with other bytes."""

    hang_s = 11.0

    def __init__(self) -> None:
        self.secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        self.forged = 0
        self.closed = threading.Event()
        self.changed = 0
        self._bodies: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._hold: tuple[threading.Event, threading.Event] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def messages(self) -> list[Message]:
        """What was delivered, each id once."""
        with self._lock:
            return [Message(name, body) for name, body in self._bodies.items()]

    @contextmanager
    def holding(self) -> Generator[threading.Event]:
        """The next POST is read and not answered before the block ends; the event says it came."""
        came, over = threading.Event(), threading.Event()
        self._hold = (came, over)
        try:
            yield came
        finally:
            self._hold = None
            over.set()

    def misbehave(self, handler: BaseHTTPRequestHandler, headers: dict[str, str]) -> str:
        """What to do to a POST: ``500`` or ``429``; take it and ``cut`` or ``hang``; nothing."""
        return ""

    def _take(self, headers: dict[str, str], body: bytes) -> bool:
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError:
            self.forged += 1
            return False
        with self._lock:
            name = headers["webhook-id"]
            self.changed += self._bodies.setdefault(name, body) != body
        return True

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                fault = receiver.misbehave(self, headers)
                if fault in ("500", "429"):
                    self.send_response(int(fault))
                    if fault == "429":
                        self.send_header("retry-after", "1")
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                genuine = receiver._take(headers, body)
                if fault:
                    over = receiver.closed
                    over.wait(receiver.hang_s if fault == "hang" else 0.0)
                    self.close_connection = True
                    return
                held = receiver._hold
                if held is not None:
                    came, over = held
                    came.set()
                    over.wait(60.0)
                    self.close_connection = True
                    return
                self.send_response(204 if genuine else 401)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Silent."""

        return Handler
