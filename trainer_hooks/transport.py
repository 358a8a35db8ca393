"""One POST, and what came of it: ``Sent``, ``RetryLater``, ``Refused`` or ``Deleted``.

Standard library only. A connection is kept and used again; loopback never goes through a proxy.
Nothing here raises for anything a network or a server can do.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass, fields
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from trainer_hooks.wire import Receipt, RefusedValue

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 15.0
MAX_RETRY_AFTER_S = 3600.0
BATCHES_PATH = "/api/v1/batches"
REFUSED_STATUSES = frozenset({400, 413, 415, 422})


@dataclass(frozen=True, slots=True)
class Sent:
    """The server holds the batch; its receipt says what became of every value."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Not now. ``after_s`` is the server's wish, if it had one; ``status`` is 0 without answer."""

    after_s: float | None
    why: str
    status: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The server will never take this batch: set it aside with the reason."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """The run was deleted on the server: stop."""

    why: str


Outcome = Sent | RetryLater | Refused | Deleted


class Transport:
    """Posts bodies to one server. Used by one thread; ``abort`` may be called from another.

    Args:
        server: ``http(s)://host[:port][/prefix]``.
        token: sent as a bearer token; never logged.
        proxies: honour ``HTTP(S)_PROXY`` and ``NO_PROXY``, except for loopback.
    """

    def __init__(
        self,
        server: str,
        *,
        token: str | None = None,
        proxies: bool = True,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self.server = server
        self._url = _split(server)
        self._headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "User-Agent": "watchkeeper-hooks",
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._proxy = _proxy_for(self._url) if proxies else None
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._aborted = threading.Event()

    def post(self, gzipped: bytes) -> Outcome:
        """Send one gzipped batch. A kept connection that went stale is tried once more, fresh."""
        if self._aborted.is_set():
            return RetryLater(None, "the client is closing")
        kept = self._connection is not None
        try:
            return self._exchange(gzipped)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if not kept or isinstance(error, TimeoutError) or self._aborted.is_set():
                return RetryLater(None, _describe(error))
        try:
            return self._exchange(gzipped)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            return RetryLater(None, _describe(error))

    def close(self) -> None:
        """Let the connection go."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """Wake a POST in flight, from another thread; every later one is refused at once."""
        self._aborted.set()
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _exchange(self, gzipped: bytes) -> Outcome:
        connection = self._open()
        connection.request("POST", self._target(), body=gzipped, headers=self._request_headers())
        response = connection.getresponse()
        body = response.read()
        if response.will_close:
            self.close()
        wish_s = parse_retry_after(response.getheader("Retry-After"), now_s=time.time())
        return read_answer(response.status, wish_s, body)

    def _open(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> http.client.HTTPConnection:
        near = self._proxy or self._url
        host, secure = near.hostname or "", self._url.scheme == "https"
        connection: http.client.HTTPConnection
        if secure:
            connection = http.client.HTTPSConnection(
                host,
                _port(near),
                timeout=self._connect_timeout_s,
                context=ssl.create_default_context(),
            )
        else:
            connection = http.client.HTTPConnection(
                host, _port(near), timeout=self._connect_timeout_s
            )
        if secure and self._proxy is not None:
            connection.set_tunnel(
                self._url.hostname or "", _port(self._url), headers=_proxy_headers(self._proxy)
            )
        self._connection = connection
        connection.connect()
        connection.sock.settimeout(self._read_timeout_s)
        return connection

    def _target(self) -> str:
        path = self._url.path.rstrip("/") + BATCHES_PATH
        if self._proxy is not None and self._url.scheme == "http":
            return f"http://{self._url.netloc.rpartition('@')[2]}{path}"
        return path

    def _request_headers(self) -> dict[str, str]:
        if self._proxy is not None and self._url.scheme == "http":
            return self._headers | _proxy_headers(self._proxy)
        return self._headers


def read_answer(status: int, retry_after_s: float | None, body: bytes) -> Outcome:
    """What an HTTP answer means for the batch."""
    if status == 200:
        receipt = read_receipt(body)
        return Sent(receipt) if receipt else RetryLater(None, "the answer is no receipt", 200)
    why = _reason(status, body)
    if status == 410:
        return Deleted(why)
    if status in REFUSED_STATUSES:
        return Refused(status, why)
    return RetryLater(retry_after_s, why, status)


def read_receipt(body: bytes) -> Receipt | None:
    """A receipt from its JSON, or None if it is something else (a login page, say)."""
    try:
        plain = json.loads(body)
        known = {f.name for f in fields(Receipt)}
        values: dict[str, Any] = {k: v for k, v in plain.items() if k in known}
        names = {f.name for f in fields(RefusedValue)}
        values["refused"] = [
            RefusedValue(**{k: v for k, v in item.items() if k in names})
            for item in values.get("refused") or []
        ]
        return Receipt(**values)
    except (ValueError, TypeError, AttributeError):
        return None


def parse_retry_after(value: str | None, *, now_s: float) -> float | None:
    """Seconds to wait, from a number of seconds or an HTTP date; None if it is neither."""
    if value is None:
        return None
    try:
        wait_s = float(value)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(value).timestamp() - now_s
        except (ValueError, TypeError):
            return None
    if wait_s != wait_s:
        return None
    return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)


def _reason(status: int, body: bytes) -> str:
    """The problem's own words, at most 300 characters of them."""
    try:
        plain = json.loads(body)
        detail = str(plain.get("detail") or plain.get("title") or "")
    except (ValueError, AttributeError):
        detail = ""
    return f"{status} {detail}".strip()[:300]


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"[:300]


def _split(server: str) -> SplitResult:
    url = urlsplit(server if "://" in server else f"http://{server}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"not an http(s) address: {server!r}")
    return url


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _proxy_for(url: SplitResult) -> SplitResult | None:
    host = url.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    proxy = getproxies().get(url.scheme)
    return _split(proxy) if proxy else None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
