"""HTTP: addresses, origins, header names, and the shapes of message heads that were parsed before."""

import ipaddress
import re
from typing import Final, NamedTuple

_ORIGIN: Final = re.compile(
    r"(?P<site>(?P<scheme>https?)://(?:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\]))(?::(?P<port>[0-9]{1,5}))?/?"
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


def parse_address(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT` or `[IPV6]:PORT` into (host, port). Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"invalid address `{text}`: write it as HOST:PORT")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback address or `localhost`, without resolving it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_origin(text: str) -> str:
    """`text` as an origin in the form that browsers send, `scheme://host[:port]`. Raises ValueError."""
    found = _ORIGIN.fullmatch(text.strip().lower())
    if found is None or int(found["port"] or 0) > 65_535:
        raise ValueError(f"invalid origin `{text[:80]}`: write it like `https://app.example.com:8443`")
    is_default = found["port"] in (None, _DEFAULT_PORTS[found["scheme"]])
    return found["site"] if is_default else f"{found['site']}:{int(found['port'])}"


HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token, by RFC 9110, 5.6.2."""

_RESERVED_HEADERS: Final = (
    *("accept", "accept-encoding", "connection", "expect", "host", "keep-alive", "last-event-id"),
    *("te", "trailer"),
)
_RESERVED_HEADER_PREFIXES: Final = ("content-", "mcp-", "proxy-", "transfer-", "upgrade")


def is_reserved_header(name: str) -> bool:
    """Whether only the gateway may set it: a record could use it to desynchronise or redirect a request."""
    return name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_HEADER_PREFIXES)


_MAX_DIGITS: Final = 8  # enough for the largest message, 64 MiB
_LENGTH = re.compile(
    rb"(?<=\r\n)content-length:[ \t]*([0-9]{1,%d})[ \t]*(?=\r\n)" % _MAX_DIGITS, re.IGNORECASE
)


class HeadShape(NamedTuple):
    """A head without the digits of its only `Content-Length`. Peers repeat their heads except for the length.
    Invariant: all heads of one shape parse alike, except for the length."""

    before: bytes
    after: bytes

    def locate(self, data: bytes) -> tuple[int, int] | None:
        """The start and length of the body, if `data` begins with a head of this shape."""
        if not data.startswith(self.before):
            return None
        begin = len(self.before)
        end = data.find(b"\r", begin, begin + _MAX_DIGITS + 1)
        digits = data[begin:end] if end > 0 else b""
        if not (digits.isdigit() and data.startswith(self.after, end)):
            return None
        return end + len(self.after), int(digits)


def parse_head_shape(head: bytes) -> HeadShape | None:
    """The shape of a complete head with its empty line; None without a plain length."""
    length = _LENGTH.search(head)
    if length is None or head.lower().count(b"\r\ncontent-length") != 1:
        return None
    return HeadShape(head[: length.start(1)], head[length.end(1) :])
