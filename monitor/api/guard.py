"""The door: which hosts and origins may call, what every answer carries, and no token in a URL.

One ASGI middleware round everything, so that an error page leaves by the same door as a good one.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitor.api.problems import of_known, unexpected
from monitor.errors import (
    BadRequest,
    Forbidden,
    TooLarge,
    UnsupportedCoding,
    WatchkeeperError,
)
from trainer_hooks.wire import MAX_BODY_BYTES

_log = logging.getLogger("monitor.api")
_access = logging.getLogger("monitor.access")

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SECRET_PARAMETERS = frozenset({"token", "access_token", "api_key", "apikey", "authorization"})
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Middleware. ``names`` are host names allowed beside this machine's own.

    ``prefix`` is the path a proxy puts before ours and may or may not strip ("" for none); no body
    may have more than ``most_bytes``.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Iterable[str] = (),
        prefix: str = "",
        most_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.app = app
        self.most_bytes = most_bytes
        self.names = LOCAL_NAMES | {_bare_name(name) for name in names}
        self.prefix = prefix.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._note_prefix(scope)
        door = _Door(send)
        scale = _Scale(receive, self.most_bytes)
        try:
            self._admit(scope)
            await self.app(scope, scale.receive, door.send)
        except WatchkeeperError as error:
            if door.started:
                raise
            await of_known(error, scope["path"])(scope, receive, door.send)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if door.started:
                raise
            await unexpected(scope["path"])(scope, receive, door.send)
        finally:
            _note_access(scope, door.status)

    def _note_prefix(self, scope: Scope) -> None:
        path = scope["path"]
        if self.prefix and (path == self.prefix or path.startswith(self.prefix + "/")):
            scope["root_path"] = self.prefix

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _bare_name(host) not in self.names:
            raise Forbidden(
                f"This server is not reached by the name {host!r}.",
                hint="Add the name to WATCHKEEPER_ALLOWED_HOSTS if it is yours.",
            )
        _refuse_odd_address(scope)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.most_bytes:
            raise _too_large(self.most_bytes)
        if scope["method"] not in SAFE_METHODS:
            _refuse_other_origins(headers, host)
            _refuse_forms(headers)


class _Scale:
    """Wraps ``receive``: a body that says no length is weighed as it comes."""

    def __init__(self, receive: Receive, most_bytes: int) -> None:
        self._receive = receive
        self._most = most_bytes
        self._taken = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self._most:
            raise _too_large(self._most)
        return message


def _too_large(most_bytes: int) -> TooLarge:
    return TooLarge(f"A body may have at most {most_bytes:,} bytes.")


class _Door:
    """Wraps ``send``: adds the headers, and knows whether the answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await self._send(message)


def _note_access(scope: Scope, status: int) -> None:
    """Method, path and status: never the query, which may hold what is nobody's business."""
    level = logging.INFO if status >= 400 or status == 0 else logging.DEBUG
    _access.log(level, "%s %s %d", scope["method"], quote(scope["path"]), status)


def _bare_name(host: str) -> str:
    """The name of a Host header or of a setting: no port, no brackets, lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.rstrip(".")


def _refuse_odd_address(scope: Scope) -> None:
    query = scope.get("query_string", b"").decode("latin-1")
    if "\0" in scope["path"] or "%00" in query or "\0" in query:
        raise BadRequest("An address holds no NUL character.")
    names = {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    if names & SECRET_PARAMETERS:
        raise BadRequest(
            "A token does not belong into an address: addresses end up in logs.",
            hint="Send it as 'Authorization: Bearer <token>'.",
        )


def _refuse_other_origins(headers: Headers, host: str) -> None:
    """Browsers say where a request comes from; whoever says nothing is not a browser's page."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in {"same-origin", "none"}:
        raise Forbidden("Another web page may not change anything here.")
    origin = headers.get("origin")
    if origin is None:
        return
    netloc = urlsplit(origin).netloc
    if netloc.lower() != host.lower() and not _same_name(netloc, host, site):
        raise Forbidden(f"Requests that change something may not come from {origin!r}.")


def _same_name(netloc: str, host: str, site: str | None) -> bool:
    """A proxy may change the port; then the browser's own word for it decides."""
    return site == "same-origin" and _bare_name(netloc) == _bare_name(host)


def _refuse_forms(headers: Headers) -> None:
    """A page of another site can post a form or plain text without asking, but not JSON."""
    length = headers.get("content-length")
    has_body = headers.get("transfer-encoding") is not None or (length not in {None, "0"})
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (not kind and not has_body):
        return
    raise UnsupportedCoding(
        f"A body of type {kind or 'unknown'!r} is not taken here.",
        hint="Send 'Content-Type: application/json'.",
    )
