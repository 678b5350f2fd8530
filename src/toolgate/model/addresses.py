"""Addresses of listeners and peers: how they are written, and which of them stay on this machine."""

import ipaddress


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
