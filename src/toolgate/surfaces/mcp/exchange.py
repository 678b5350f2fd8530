"""One HTTP request to the MCP endpoint, and its headers compared with the body that is executed.

Intermediaries route and filter by headers (2026-07-28), so headers that repeat the body must not say
something else.
"""

import base64
import binascii
from typing import Final

from toolgate.errors import HeaderMismatch, NotAcceptable
from toolgate.model.principals import Principal
from toolgate.model.tools import ToolDefinition
from toolgate.surfaces.http.messages import HttpRequest, Responder
from toolgate.surfaces.http.parsing import reject_repeated_headers
from toolgate.upstream.connection.contract import Params
from toolgate.upstream.connection.messages import iter_mirrored_headers

# Readers of the first and of the last copy would disagree about these.
_ONCE_ONLY: Final = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
    }
)


class McpExchange:
    """One HTTP request with its principal and its responder."""

    __slots__ = ("headers", "principal", "request", "responder")

    def __init__(self, request: HttpRequest, responder: Responder, principal: Principal) -> None:
        self.request = request
        self.responder = responder
        self.principal = principal
        self.headers = request.headers

    @property
    def authorization(self) -> str | None:
        """The credential as it was sent."""
        value = self.headers.get(b"authorization")
        return None if value is None else value.decode("latin-1")

    @property
    def accepts_stream(self) -> bool:
        """Whether the client accepts an event stream as a response."""
        accepted = self.headers.get(b"accept", b"*/*")
        if b"text/event-stream" in accepted:  # as nearly all write it
            return True
        return b"*/*" in accepted or b"text/event-stream" in accepted.lower()

    def header(self, name: bytes) -> str | None:
        """A header's value without surrounding white space."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def require_accept(self, media: str) -> None:
        """Raise NotAcceptable if the client does not accept `media`."""
        accepted = self.header(b"accept")
        if accepted is None:
            return
        kinds = {one.split(";")[0].strip().lower() for one in accepted.split(",")}
        if not kinds & {media, "*/*", media.split("/", maxsplit=1)[0] + "/*"}:
            raise NotAcceptable(f"the client does not accept `{media}`")


async def return_at_once() -> None:
    """For a request that has its response already."""


def check_headers(request: HttpRequest) -> None:
    """Reject repeated headers that decide the routing."""
    if request.repeated:
        reject_repeated_headers(request, _ONCE_ONLY)


def check_header(exchange: McpExchange, name: bytes, expected: str) -> None:
    """Raise HeaderMismatch unless the header has the value `expected`."""
    value = exchange.headers.get(name)
    if value is not None and (value == expected.encode() or _decode_header(value) == expected):
        return
    shown = name.decode()
    if value is None:
        raise HeaderMismatch(f"the header `{shown}` is missing")
    raise HeaderMismatch(f"the header `{shown}` and the body disagree")


def check_argument_headers(exchange: McpExchange, tool: ToolDefinition, params: Params) -> None:
    """Raise HeaderMismatch unless the `Mcp-Param-…` headers of a call equal its arguments."""
    for name, text in iter_mirrored_headers(tool, bytes(params.get("arguments", b"{}"))):
        folded = name.lower().encode()
        if folded in exchange.request.repeated:
            raise HeaderMismatch(f"duplicate header `{name}`")
        if text is not None:
            check_header(exchange, folded, text)
        elif folded in exchange.headers:
            raise HeaderMismatch(f"the header `{name}` repeats an argument that the body does not have")


def _decode_header(value: bytes) -> str | None:
    """A header value, decoded as the specification encodes text beyond ASCII; None if malformed."""
    text = value.decode("latin-1").strip(" \t")
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return base64.b64decode(text[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
