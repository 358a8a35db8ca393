"""Where a webhook may go, and what is said when it does not get there."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator

import pytest

from monitor.senders.addresses import NotAllowed, check, resolve
from monitor.senders.http import HttpSender


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "::ffff:169.254.169.254",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "fc00::1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
    ],
)
def test_addresses_inside_are_refused(address: str) -> None:
    with pytest.raises(NotAllowed):
        check([address], [])


def test_one_private_address_among_public_ones_is_enough() -> None:
    with pytest.raises(NotAllowed):
        check(["93.184.216.34", "127.0.0.1"], [])


def test_public_ones_may_be_gone_to() -> None:
    assert check(["93.184.216.34", "2606:2800:220:1::1"], []) == "93.184.216.34"


def test_a_home_network_may_be_allowed_on_purpose() -> None:
    assert check(["192.168.1.9"], ["192.168.1.0/24"]) == "192.168.1.9"
    with pytest.raises(NotAllowed):
        check(["192.168.2.9"], ["192.168.1.0/24"])


INSIDE = [
    "127.0.0.1",
    "127.8.8.8",
    "localhost",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "127.1",
    "0.0.0.0",
    "0",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::1]",
    "[::]",
    "[fe80::1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "[fc00::1]",
    "[fd12:3456::1]",
]


@pytest.mark.parametrize("host", INSIDE)
def test_every_spelling_of_an_address_inside_is_refused_at_save_and_at_send(host: str) -> None:
    sender = HttpSender()
    url = f"http://user@{host}:9/path"
    answer = sender(url, b"", {})
    assert answer.status is None
    assert answer.refused
    assert sender.examine(url), "it could be saved"


def test_a_name_that_led_out_when_it_was_saved_and_leads_inside_when_it_is_sent() -> None:
    """Each try looks at what the name leads to at that moment, at all of it, and goes there."""
    told = [["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "169.254.169.254"]]
    sender = HttpSender(resolver=lambda host, port: told.pop(0))
    url = "https://hooks.example.org/x"
    assert sender.examine(url) == ""
    assert sender(url, b"", {}).refused
    assert sender(url, b"", {}).refused


def test_a_redirect_is_not_followed(one_redirect: str) -> None:
    answer = HttpSender(["127.0.0.0/8"])(one_redirect, b"{}", {})
    assert (answer.status, answer.said) == (307, "go there")


@pytest.fixture
def one_redirect() -> Generator[str]:
    """A server for one connection that points inside."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(
                        b"HTTP/1.1 307 Temporary Redirect\r\ncontent-length: 8\r\n"
                        b"location: /latest/meta-data/\r\n\r\ngo there"
                    )

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5.0)
    assert len(asked) == 1


def test_a_name_that_cannot_be_resolved_may_be_tried_again() -> None:
    def nowhere(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    answer = HttpSender(resolver=nowhere)("https://example.org/", b"", {})
    assert (answer.error, answer.refused) == ("the name cannot be resolved", False)


@pytest.mark.parametrize("url", ["ftp://example.org/", "file:///etc/passwd", "nonsense", "http://"])
def test_only_web_addresses(url: str) -> None:
    assert HttpSender()(url, b"", {}).refused


@pytest.fixture
def one_answer() -> Generator[tuple[int, list[bytes]]]:
    """A server for one connection that answers 204; its port and what it was sent."""
    listener = socket.create_server(("127.0.0.1", 0))
    got: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            got.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], got
    finally:
        listener.close()
        thread.join(5.0)


def test_the_connection_goes_to_the_address_that_was_checked(
    one_answer: tuple[int, list[bytes]],
) -> None:
    """A second look-up would lead elsewhere: there is none, and the name stays in the request."""
    port, got = one_answer
    asked: list[str] = []

    def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    sender = HttpSender(allow_private=["127.0.0.1"], resolver=resolver)
    answer = sender(f"http://hooks.example.org:{port}/path", b"{}", {"x-one": "1"})
    assert answer.status == 204
    assert asked == ["hooks.example.org"]
    assert f"host: hooks.example.org:{port}".encode() in got[0].lower()
    assert got[0].startswith(b"POST /path HTTP/1.1")


def test_a_receiver_that_drips_is_given_up() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port, done = listener.getsockname()[1], threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nx-drip: ")
            while not done.wait(0.05):
                connection.sendall(b"x")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    began = time.monotonic()
    try:
        answer = HttpSender(["127.0.0.1"], longest_s=0.5)(f"http://127.0.0.1:{port}/", b"", {})
    finally:
        done.set()
        listener.close()
        thread.join(5.0)
    assert answer.status is None
    assert time.monotonic() - began < 5.0


def test_resolving_knows_the_numbers() -> None:
    assert resolve("127.0.0.1", 80) == ["127.0.0.1"]
