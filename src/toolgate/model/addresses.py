"""Addresses of listeners and peers: how they are written, and which of them stay on this machine."""

import ipaddress
import re
from typing import Final

_ORIGIN: Final = re.compile(
    r"(?P<site>(?P<scheme>https?)://(?:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\]))(?::(?P<port>[0-9]{1,5}))?/?"
)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT` or `[IPV6]:PORT`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"`{text}` is not HOST:PORT")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine, whatever a resolver says: a loopback address, or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_origin(text: str) -> str:
    """`text` as browsers write the origin of a page, `scheme://host[:port]`. Raises ValueError."""
    found = _ORIGIN.fullmatch(text.strip().lower())
    if found is None or int(found["port"] or 0) > 65_535:
        raise ValueError(f"`{text[:80]}` is not an origin: write it like `https://app.example.com:8443`")
    is_default = found["port"] in (None, _DEFAULT_PORTS[found["scheme"]])
    return found["site"] if is_default else f"{found['site']}:{int(found['port'])}"
