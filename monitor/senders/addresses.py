"""Which addresses a webhook may go to: none inside, unless somebody allowed it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Sequence[str]]

NAT64 = IPv6Network("64:ff9b::/96")


class NotAllowed(Exception):
    """The target lies on a private network, on this machine, or is no web address."""


def resolve(host: str, port: int) -> list[str]:
    """All addresses of a host name; also the odd forms of numbers the resolver knows.

    Raises:
        OSError: there are none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def check(addresses: Iterable[str], allowed: Iterable[str]) -> str:
    """The address to connect to, when every one of them may be gone to.

    Raises:
        NotAllowed: one of them is private and on no allowed network.
    """
    networks = [ip_network(text, strict=False) for text in allowed]
    first = ""
    for text in addresses:
        address = _inner(ip_address(text.partition("%")[0]))
        if not _is_public(address) and not any(address in network for network in networks):
            raise NotAllowed(
                "the address is private; allow it by WATCHKEEPER_WEBHOOK_ALLOW_PRIVATE"
            )
        first = first or text
    if not first:
        raise NotAllowed("the name has no address")
    return first


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast


def _inner(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that only wraps it."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
