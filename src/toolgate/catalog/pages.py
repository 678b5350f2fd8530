"""Definitions and lists of them as clients of each era take them, in bytes.

What is carried is not re-modelled: every member that need not change passes as the server wrote it, so
`$defs`, `_meta` and vendor keys survive. A change is made only where a client of that era would refuse the
list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from toolgate.catalog.checks import legacy_form
from toolgate.model.protocol import LIST_MEMBERS
from toolgate.model.raw import Members, decode_members
from toolgate.model.tools import Era, Listing, ListKind, ToolDefinition

_NAMED_BY: Final[Mapping[ListKind, str]] = {
    "prompts": "name",
    "resources": "uri",
    "templates": "uriTemplate",
}
_SCHEMAS: Final = ("inputSchema", "outputSchema")
_EMPTY_OBJECT: Final = msgspec.Raw(b"{}")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


def encode_definition(definition: ToolDefinition, name: str, *, era: Era) -> bytes:
    """The server's own JSON under the door's `name` for it; for legacy clients, with schemas they take."""
    members = decode_members(definition.raw)
    members["name"] = msgspec.Raw(_encode(name))
    if era == "legacy" and not definition.is_legacy_safe:
        _downgrade(members)
    return _encode(members)


def encode_listing(listing: Listing, name: str, *, kind: ListKind) -> bytes:
    """The server's own JSON under the door's `name` for it, the same for clients of either era."""
    if name == listing.name:
        return listing.raw
    members = decode_members(listing.raw)
    members[_NAMED_BY[kind]] = msgspec.Raw(_encode(name))
    return _encode(members)


def encode_page(
    kind: ListKind,
    listed: Sequence[bytes],
    *,
    era: Era,
    next_cursor: str | None,
    ttl_ms: int,
    meta: Mapping[str, Any],
) -> bytes:
    """The result of the list's method, with `listed` in the order given. A scoped list is never `public`."""
    parts = [b'{"%b":[%b]' % (LIST_MEMBERS[kind].encode(), b",".join(listed))]
    if next_cursor is not None:
        parts.append(b'"nextCursor":%b' % _encode(next_cursor))
    if era == "modern":
        parts.append(b'"resultType":"complete","ttlMs":%d,"cacheScope":"private"' % ttl_ms)
    if meta:
        parts.append(b'"_meta":%b' % _encode(meta))
    return b",".join(parts) + b"}"


def _downgrade(members: Members) -> None:
    """Schemas as legacy clients take them. An output schema they have no words for is left out."""
    for key in _SCHEMAS:
        schema = _decode(members.get(key, _EMPTY_OBJECT))
        form = legacy_form(schema)
        if form is None:
            members.pop(key, None)
        elif form is not schema:
            members[key] = msgspec.Raw(_encode(form))
