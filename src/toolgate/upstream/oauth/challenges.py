"""What a server says when it refuses a request for want of a token, or of a scope (RFC 6750, section 3).

It is a server's word: an address in it is used at that server's own origin only, and scopes decide what
somebody is asked to agree to, never what the gateway asks for as itself.
"""

import re
from dataclasses import dataclass
from typing import Final

from toolgate.model.protocol import MODERN_VERSION
from toolgate.upstream.connection.messages import encode_request
from toolgate.upstream.http.fetch import Fetcher, FetchFailed

MAX_SCOPES: Final = 64
_MAX_CHARS: Final = 8_192
_PARAMETER = re.compile(r'([A-Za-z_]{1,40})="((?:[^"\\]|\\.)*)"')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The parts of it that somebody here goes by."""

    error: str = ""
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None


NO_CHALLENGE: Final = Challenge()


def parse_challenge(header: str) -> Challenge:
    """Of a `WWW-Authenticate` header; what is no part of a challenge for bearers is passed over."""
    if header[:7].lower() != "bearer " or len(header) > _MAX_CHARS:
        return NO_CHALLENGE
    found = {name.lower(): value for name, value in _PARAMETER.findall(header)}
    return Challenge(
        error=found.get("error", ""),
        scopes=parse_scopes(found.get("scope", "").split(" ")),
        resource_metadata=found.get("resource_metadata"),
    )


def parse_scopes(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Those that can be asked for, each once and not too many."""
    return tuple(dict.fromkeys(word for word in words if _SCOPE.fullmatch(word)))[:MAX_SCOPES]


async def provoke_challenge(fetcher: Fetcher, url: str) -> Challenge:
    """What the server at `url` says to who comes without a token, with a question that changes nothing."""
    try:
        answer = await fetcher.post_json(url, encode_request(1, "server/discover", {}), _PROBE)
    except FetchFailed:
        return NO_CHALLENGE
    if answer.status != 401:
        return NO_CHALLENGE
    return parse_challenge(answer.headers.get(b"www-authenticate", b"").decode("latin-1"))


_PROBE: Final = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "server/discover"}
