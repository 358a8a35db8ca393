"""One POST over HTTP: no redirects, no proxies, no private addresses, no secrets in what is said.

The name is resolved once, every address of it is checked, and the connection goes to the address
that was checked, so that a second look-up cannot lead elsewhere.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from monitor.clock import Clock
from monitor.senders.addresses import NotAllowed, Resolver, check, resolve

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0
LONGEST_S = 15.0
"""A receiver that answers byte by byte is given up after this long."""
KEPT_BYTES = 2048
SAID_BYTES = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``status`` is None where nothing did; ``error`` names why, without secrets.

    ``retry_after`` is the header as sent, or the number a JSON body gives under that name. ``said``
    is the beginning of the answer as text; it may repeat a secret that was sent.
    """

    status: int | None
    error: str = ""
    retry_after: str = ""
    refused: bool = False
    said: str = ""


@dataclass(slots=True)
class HttpSender:
    """Sends one request at a time. ``allow_private``: networks that may be gone to all the same."""

    allow_private: Sequence[str] = ()
    resolver: Resolver = resolve
    longest_s: float = LONGEST_S
    monotonic: Clock = time.monotonic

    def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST"
    ) -> Answer:
        """Post once. Never raises: what went wrong is in the answer."""
        try:
            request = self._request(url, body, headers, method)
        except NotAllowed as error:
            return Answer(None, str(error), refused=True)
        except (httpx.InvalidURL, ValueError):
            return Answer(None, "not a web address", refused=True)
        except OSError:
            return Answer(None, "the name cannot be resolved")
        try:
            return self._send(request)
        except httpx.TimeoutException as error:
            return Answer(None, f"timed out ({type(error).__name__})")
        except (httpx.HTTPError, OSError) as error:
            return Answer(None, f"connection failed ({type(error).__name__})")

    def examine(self, url: str) -> str:
        """Why nothing is sent there; empty where it is tried (a name may yet get an address)."""
        try:
            self._request(url, b"", {}, "POST")
        except NotAllowed as error:
            return str(error)
        except (httpx.InvalidURL, ValueError):
            return "not a web address"
        except OSError:
            return ""
        return ""

    def _request(
        self, url: str, body: bytes, headers: Mapping[str, str], method: str
    ) -> httpx.Request:
        target = httpx.URL(url)
        if target.scheme not in ("http", "https") or not target.host:
            raise NotAllowed("only http and https addresses can be posted to")
        port = target.port or (443 if target.scheme == "https" else 80)
        address = check(self.resolver(target.raw_host.decode("ascii"), port), self.allow_private)
        timeout = {"connect": CONNECT_TIMEOUT_S, "read": READ_TIMEOUT_S, "write": READ_TIMEOUT_S}
        extensions: dict[str, Any] = {"timeout": {**timeout, "pool": CONNECT_TIMEOUT_S}}
        if target.scheme == "https":
            # The certificate is that of the name, though the connection goes to the address.
            extensions["sni_hostname"] = target.raw_host.decode("ascii")
        return httpx.Request(
            method,
            target.copy_with(host=address),
            headers={**headers, "host": target.netloc.decode("ascii")},
            content=body,
            extensions=extensions,
        )

    def _send(self, request: httpx.Request) -> Answer:
        """Straight through the transport: a client would log the address, which may be a secret."""
        end = self.monotonic() + self.longest_s
        with httpx.HTTPTransport(retries=0, trust_env=False) as transport:
            # The library's time-outs are per read: a receiver that drips would never run into one.
            watchdog = threading.Timer(self.longest_s, transport.close)
            watchdog.start()
            try:
                response = transport.handle_request(request)
                body = self._read(response, end)
                response.close()
            finally:
                watchdog.cancel()
        return Answer(
            response.status_code,
            "",
            _retry_after(response.headers, body),
            said=_said(body),
        )

    def _read(self, response: httpx.Response, end: float) -> bytes:
        """The beginning of the body; the status counts even where the rest never comes."""
        body = b""
        try:
            for piece in response.iter_raw():
                body += piece
                if len(body) >= KEPT_BYTES or self.monotonic() > end:
                    break
        except (httpx.HTTPError, OSError):
            return body[:KEPT_BYTES]
        return body[:KEPT_BYTES]


def _said(body: bytes) -> str:
    text = body[:SAID_BYTES].decode("utf-8", "replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _retry_after(headers: httpx.Headers, body: bytes) -> str:
    if "retry-after" in headers:
        return str(headers["retry-after"])
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    wait = said.get("retry_after") if isinstance(said, dict) else None
    return str(wait) if isinstance(wait, int | float) and not isinstance(wait, bool) else ""
