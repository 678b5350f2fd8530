"""Headers of HTTP: what is the name of one, and which a record may not set."""

import re
from typing import Final

HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token, by RFC 9110, 5.6.2."""

_OWN: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "te",
        "trailer",
    }
)
_OWN_PREFIXES: Final = ("content-", "mcp-", "proxy-", "transfer-", "upgrade")


def is_own_header(name: str) -> bool:
    """Whether the gateway alone sets it: from a record it could desynchronise or redirect a request."""
    return name.lower() in _OWN or name.lower().startswith(_OWN_PREFIXES)
