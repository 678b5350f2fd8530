"""Egress control: one check for every outbound address.

The check comes after name resolution, and the gateway connects to exactly the address that was checked, so a
name that resolves differently the second time (DNS rebinding) gains nothing. Opens no connection, and ignores
the environment's proxies.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from toolgate.model.names import matches_glob

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host and port to addresses, in order of preference."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# The request target and the authority are copied into a request head, so they must not end a line.
_PLAIN_URL = re.compile(r"[!-~]+")
_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
# As browsers and inet_aton read it: a last label of digits, or 0x and hex, makes the whole an address.
_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")


def _networks(*prefixes: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(prefix) for prefix in prefixes)


_NEVER: Final = {
    "an unspecified address": _networks("0.0.0.0/8", "::/128"),
    "a link-local address": _networks("169.254.0.0/16", "fe80::/10", "fec0::/10"),
    "a multicast or reserved address": _networks("224.0.0.0/4", "240.0.0.0/4", "ff00::/8", "100::/64"),
    "another spelling of an IPv4 address": _networks(
        "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"
    ),
    # Cloud metadata that does not live on a link-local address: AWS, Alibaba, Oracle, Azure.
    "a cloud metadata address": _networks(
        "fd00:ec2::254/128", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32"
    ),
}
_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
_IPV4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "2001:db8::/32",
    "fc00::/7",
)
# IPv6-only networks reach IPv4 servers through it, so the embedded address is checked instead (RFC 6052).
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class EgressRefused(Exception):
    """The gateway does not connect to this address. The message names the host, never the whole URL."""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A checked URL, in the parts a request needs."""

    is_tls: bool
    host: str
    port: int
    authority: str
    """The value of the `Host` header."""
    path: str
    """The request target: path and query."""

    @property
    def origin(self) -> tuple[bool, str, int]:
        return self.is_tls, self.host, self.port

    @property
    def address(self) -> str:
        """For people: host and port, without path or query, which may hold a token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_target(url: str) -> HttpTarget:
    """An `http` or `https` URL without user information. Raises EgressRefused."""
    if not _PLAIN_URL.fullmatch(url) or "\\" in url:
        raise EgressRefused("the URL holds characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise EgressRefused("the URL is not valid") from exc
    if parts.scheme not in _DEFAULT_PORTS:
        raise EgressRefused(f"the scheme `{parts.scheme}` is not `http` or `https`")
    if "@" in parts.netloc:
        raise EgressRefused("the URL holds user information; use `auth_ref` or `headers` instead")
    if parts.fragment:
        raise EgressRefused("the URL holds a fragment, which no server would see")
    if port == 0:
        raise EgressRefused("port 0 cannot be connected to")
    host = parts.hostname or ""
    _check_host(host)
    path = parts.path or "/"
    return HttpTarget(
        is_tls=parts.scheme == "https",
        host=host,
        port=_DEFAULT_PORTS[parts.scheme] if port is None else port,
        authority=parts.netloc,
        path=f"{path}?{parts.query}" if parts.query else path,
    )


def _check_host(host: str) -> None:
    """Reject spellings that other software would read as another address."""
    if _literal(host) is not None:
        return
    last_label = host.removesuffix(".").rpartition(".")[2]
    if not _HOST_NAME.fullmatch(host) or _NUMERIC_LABEL.fullmatch(last_label):
        raise EgressRefused(f"`{host}` is neither a host name nor a plainly spelled IP address")


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


async def resolve_by_system(host: str, port: int) -> list[str]:
    """Query the system's resolver, without blocking the event loop."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The rule for outbound connections."""

    allow_private: bool
    """Allow loopback and private networks, where MCP servers commonly run."""
    allowed_hosts: Sequence[str] = ()
    """Patterns of names and addresses. If there are any, all other hosts are rejected."""
    resolver: Resolver = resolve_by_system

    async def resolve(self, host: str, port: int) -> list[str]:
        """The allowed addresses of `host`; at least one. Raises EgressRefused, OSError.

        Invariant: the caller connects to one of these and does not resolve again.
        """
        _check_host(host)
        self._check_listed(host)
        spelled = [host] if _literal(host) is not None else await self.resolver(host, port)
        addresses = dict.fromkeys(ipaddress.ip_address(text.partition("%")[0]) for text in spelled)
        reasons = {address: self._refusal(address) for address in addresses}
        vetted = [str(address) for address, reason in reasons.items() if reason is None]
        if vetted:
            return vetted
        reason = next((reason for reason in reasons.values() if reason), "a name without any address")
        raise EgressRefused(f"`{host}` is {reason}, which this gateway does not connect to")

    def check_literal(self, target: HttpTarget) -> None:
        """Reject a bad address early, without name resolution. Raises EgressRefused."""
        self._check_listed(target.host)
        address = _literal(target.host)
        reason = self._refusal(address) if address is not None else None
        if reason is not None:
            raise EgressRefused(f"`{target.host}` is {reason}, which this gateway does not connect to")

    def _check_listed(self, host: str) -> None:
        """Addresses match in their canonical spelling, names without their last dot."""
        if not self.allowed_hosts:
            return
        address = _literal(host)
        spelled = str(address) if address is not None else host.lower().removesuffix(".")
        if not any(matches_glob(pattern.lower(), spelled) for pattern in self.allowed_hosts):
            raise EgressRefused(f"`{host}` is not among the `allowed_upstream_hosts` of this gateway")

    def _refusal(self, address: Address) -> str | None:
        """The kind of a forbidden address, as a noun phrase; None if it is allowed."""
        if isinstance(address, ipaddress.IPv6Address) and address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        for reason, networks in _NEVER.items():
            if any(address in network for network in networks):
                return reason
        if any(address in network for network in _LOOPBACK):
            return None if self.allow_private else "a loopback address"
        if address in _IPV4_COMPATIBLE:
            return "another spelling of an IPv4 address"
        if any(address in network for network in _PRIVATE):
            return None if self.allow_private else "a private address"
        return None
