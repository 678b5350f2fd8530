"""Headers by which intermediaries route a request, held against the body that is executed (2026-07-28).

Whoever looked at the headers on the way here must have seen the truth.
"""

import base64
import binascii

from toolgate.errors import HeaderMismatch
from toolgate.model.tools import ToolDefinition
from toolgate.surfaces.mcp.exchange import Exchange
from toolgate.upstream.connection.contract import Params
from toolgate.upstream.headers import mirrored_values


def check_header(exchange: Exchange, name: bytes, expected: str) -> None:
    """The header is there and says `expected`. Raises HeaderMismatch."""
    value = exchange.headers.get(name)
    if value is not None and (value == expected.encode() or _decoded(value) == expected):
        return
    shown = name.decode()
    if value is None:
        raise HeaderMismatch(f"the header `{shown}` is missing")
    raise HeaderMismatch(f"the header `{shown}` and the body disagree")


def check_arguments(exchange: Exchange, tool: ToolDefinition, params: Params) -> None:
    """The `Mcp-Param-…` headers of a call say what its arguments do. Raises HeaderMismatch."""
    for name, text in mirrored_values(tool, bytes(params.get("arguments", b"{}"))):
        folded = name.lower().encode()
        if folded in exchange.request.repeated:
            raise HeaderMismatch(f"the header `{name}` stands more than once")
        if text is not None:
            check_header(exchange, folded, text)
        elif folded in exchange.headers:
            raise HeaderMismatch(f"the header `{name}` repeats an argument that is not there")


def _decoded(value: bytes) -> str | None:
    """A header value as the specification encodes text that is not plain ASCII; None when malformed."""
    text = value.decode("latin-1").strip(" \t")
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return base64.b64decode(text[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
