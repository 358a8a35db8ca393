"""Mail over SMTP against a real little server that answers by a script."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from monitor.senders.http import Answer
from monitor.senders.smtp import SmtpSender
from tests.fixtures.require import need

ENVELOPE = {
    "security": "none",
    "user": "",
    "password": "",
    "from": "w@x.org",
    "to": "a@x.org,b@x.org",
}


@dataclass
class Post:
    """One connection's server. ``answers``: instead of 250, by the command's first word."""

    answers: dict[str, str] = field(default_factory=dict)
    port: int = 0
    heard: list[str] = field(default_factory=list)
    mail: bytes = b""

    trust: ssl.SSLContext | None = None

    def serve(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            if self.trust is not None:
                connection = self.trust.wrap_socket(connection, server_side=True)
            self.talk(connection)

    def talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as wire:
            wire.write(b"220 here\r\n")
            wire.flush()
            for line in wire:
                self.heard.append(line.decode().strip())
                word = line.split(b" ")[0].strip().upper().decode()
                key = f"{word} {len([one for one in self.heard if one.upper().startswith(word)])}"
                answer = self.answers.get(key) or self.answers.get(word, "250 fine")
                if word == "EHLO":
                    answer = "250-here\r\n250 AUTH PLAIN"
                if word == "DATA" and word not in self.answers:
                    wire.write(b"354 go on\r\n")
                    wire.flush()
                    while not self.mail.endswith(b"\r\n.\r\n"):
                        self.mail += wire.readline()
                wire.write(f"{answer}\r\n".encode())
                wire.flush()


@pytest.fixture
def post() -> Generator[Post]:
    listener = socket.create_server(("127.0.0.1", 0))
    made = Post(port=listener.getsockname()[1])
    thread = threading.Thread(target=made.serve, args=(listener,), daemon=True)
    thread.start()
    yield made
    listener.close()
    thread.join(5.0)


def sender(**more: object) -> SmtpSender:
    return SmtpSender(["127.0.0.0/8"], resolver=lambda host, port: ["127.0.0.1"], **more)  # type: ignore[arg-type]


def send(post: Post, **envelope: str) -> Answer:
    url = f"smtp://mail.example.org:{post.port}"
    return sender()(url, b"Subject: x\r\n\r\nhello\r\n", {**ENVELOPE, **envelope})


def test_a_mail_arrives_at_all_of_them(post: Post) -> None:
    answer = send(post)
    assert (answer.status, answer.error) == (250, "")
    assert b"hello" in post.mail
    rcpt = [line for line in post.heard if line.upper().startswith("RCPT")]
    assert [line.partition("<")[2] for line in rcpt] == ["a@x.org>", "b@x.org>"]


def test_whom_it_did_not_reach_is_said(post: Post) -> None:
    post.answers = {"RCPT 2": "550 no such user"}
    answer = send(post)
    assert (answer.status, answer.said) == (250, "250 accepted; not to b@x.org")


@pytest.mark.parametrize(
    ("command", "said", "for_good"),
    [
        ("RCPT", "550 no such user", True),
        ("RCPT", "450 greylisted", False),
        ("MAIL", "451 later", False),
        ("DATA", "554 looks like spam", True),
    ],
)
def test_what_passes_is_tried_again_and_what_does_not_is_not(
    post: Post, command: str, said: str, for_good: bool
) -> None:
    post.answers = {command: said}
    answer = send(post)
    assert (answer.status, answer.error, answer.refused) == (None, said, for_good)


def test_a_refused_password_is_not_repeated(post: Post) -> None:
    post.answers = {"AUTH": "535 bad credentials for marker"}
    answer = send(post, user="u", password="marker")
    assert (answer.error, answer.refused) == ("the server refused the password (535)", True)


def test_a_server_without_encryption_is_not_given_the_password(post: Post) -> None:
    answer = send(post, security="starttls", user="u", password="marker")
    assert answer.refused
    assert not any(line.upper().startswith("AUTH") for line in post.heard)


def test_a_server_that_is_away_may_come_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answer = sender()(f"smtp://mail.example.org:{port}", b"", ENVELOPE)
    assert (answer.status, answer.refused) == (None, False)
    assert answer.error.startswith("connection failed")


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"smtp://mail.example.org:{listener.getsockname()[1]}"
        answer = sender(longest_s=0.3)(url, b"", ENVELOPE)
    assert (answer.status, answer.refused) == (None, False)


@pytest.mark.parametrize(
    "url", ["smtp://127.0.0.1:25", "smtp://localhost:25", "smtp://:25", "smtp://2130706433"]
)
def test_a_server_inside_is_refused_unless_allowed(url: str) -> None:
    plain = SmtpSender()
    assert plain(url, b"", ENVELOPE).refused
    assert plain.examine(url)
    assert not SmtpSender(["127.0.0.0/8"]).examine("smtp://127.0.0.1:25")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for mail.example.org with its key, in one file."""
    openssl = shutil.which("openssl")
    need(openssl is not None, "no openssl to make a certificate with")
    file = tmp_path_factory.mktemp("certificate") / "both.pem"
    command = [str(openssl), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=mail.example.org", "-addext", "subjectAltName=DNS:mail.example.org"]
    files = ["-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True, timeout=60)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@pytest.mark.parametrize(("name", "went"), [("mail.example.org", True), ("other.example", False)])
def test_the_certificate_is_that_of_the_name_though_the_connection_goes_to_an_address(
    post: Post, certificate: Path, name: str, went: bool
) -> None:
    post.trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    post.trust.load_cert_chain(certificate)
    believed = ssl.create_default_context(cafile=str(certificate))
    answer = sender(context=believed)(
        f"smtp://{name}:{post.port}", b"Subject: x\r\n\r\nhi\r\n", {**ENVELOPE, "security": "tls"}
    )
    assert (answer.status == 250) is went
    assert (b"hi" in post.mail) is went
