"""One e-mail over SMTP: the same rules for addresses, time and secrets as over HTTP."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from monitor.senders.addresses import NotAllowed, Resolver, check, resolve
from monitor.senders.http import CONNECT_TIMEOUT_S, LONGEST_S, Answer

SHOWN_CHARS = 200


class _Pinned(smtplib.SMTP):
    """Connects to the address that was checked; certificates are still those of the name."""

    address = ""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((self.address, port), timeout)


class _PinnedTls(_Pinned):
    """The same, encrypted from the first byte."""

    context: ssl.SSLContext

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain = super()._get_socket(host, port, timeout)
        return self.context.wrap_socket(plain, server_hostname=host)


@dataclass(slots=True)
class SmtpSender:
    """Sends one message at a time. ``context`` says which certificates are believed."""

    allow_private: Sequence[str] = ()
    resolver: Resolver = resolve
    longest_s: float = LONGEST_S
    context: ssl.SSLContext | None = None

    def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST"
    ) -> Answer:
        """Send once. Never raises. 250 is success; what may pass has no status and is retried."""
        try:
            host, port, address = self._target(url)
        except NotAllowed as error:
            return Answer(None, str(error), refused=True)
        except ValueError:
            return Answer(None, "not a mail server's name", refused=True)
        except OSError:
            return Answer(None, "the name cannot be resolved")
        try:
            return self._send(host, port, address, body, headers)
        except smtplib.SMTPAuthenticationError as error:
            return Answer(
                None, f"the server refused the password ({error.smtp_code})", refused=True
            )
        except smtplib.SMTPNotSupportedError as error:
            return Answer(None, f"the server cannot do this: {error}"[:SHOWN_CHARS], refused=True)
        except smtplib.SMTPRecipientsRefused as error:
            return _refused(*next(iter(error.recipients.values())))
        except smtplib.SMTPResponseException as error:
            return _refused(error.smtp_code, error.smtp_error)
        except TimeoutError:
            return Answer(None, "timed out")
        except (smtplib.SMTPException, OSError) as error:
            return Answer(None, f"connection failed ({type(error).__name__})")

    def examine(self, url: str) -> str:
        """Why nothing is sent there; empty where it is tried."""
        try:
            self._target(url)
        except NotAllowed as error:
            return str(error)
        except ValueError:
            return "not a mail server's name"
        except OSError:
            return ""
        return ""

    def _target(self, url: str) -> tuple[str, int, str]:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 25
        if not host:
            raise ValueError
        return host, port, check(self.resolver(host, port), self.allow_private)

    def _send(
        self, host: str, port: int, address: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        smtp = self._client(headers["security"])
        smtp.address = address
        # Time-outs of the library are per read: a server that drips would never run into one.
        watchdog = threading.Timer(self.longest_s, _hang_up, (smtp,))
        watchdog.start()
        try:
            smtp._host = host  # type: ignore[attr-defined]  # whose certificate it must be
            smtp.connect(host, port)
            smtp.ehlo()
            if headers["security"] == "starttls":
                smtp.starttls(context=self._trust())
                smtp.ehlo()
            if headers["user"]:
                smtp.login(headers["user"], headers["password"])
            refused = smtp.sendmail(headers["from"], headers["to"].split(","), body)
        finally:
            watchdog.cancel()
            smtp.close()
        left_out = f"; not to {', '.join(refused)}" if refused else ""
        return Answer(250, "", said=f"250 accepted{left_out}")

    def _client(self, security: str) -> _Pinned:
        if security != "tls":
            return _Pinned(timeout=CONNECT_TIMEOUT_S)
        client = _PinnedTls(timeout=CONNECT_TIMEOUT_S)
        client.context = self._trust()
        return client

    def _trust(self) -> ssl.SSLContext:
        return self.context or ssl.create_default_context()


def _refused(code: int, said: Any) -> Answer:
    """4yz may pass another time, 5yz will not (RFC 5321 4.2.1)."""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return Answer(None, f"{code} {text}"[:SHOWN_CHARS], refused=code >= 500)


def _hang_up(smtp: smtplib.SMTP) -> None:
    held = smtp.sock
    if held is not None:
        try:
            held.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
