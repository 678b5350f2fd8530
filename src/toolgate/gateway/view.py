"""A compiled scope made ready to serve: names to tools, and lists as bytes encoded once.

Listed ⇔ callable by construction: the same table answers both.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.catalog.listing import encode_definition, encode_page
from toolgate.catalog.naming import door_name
from toolgate.errors import InvalidParams, MethodNotFound
from toolgate.gateway.caller import Caller
from toolgate.model.protocol import SERVER_INFO_KEY
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import Era, ListKind, ToolDefinition
from toolgate.policy.scope import Scope

WARNINGS_KEY: Final = "toolgate/warnings"
TTL_MS: Final = 30_000
"""How long a client may keep a list. `list_changed` tells those who listen sooner."""
_ROUTE_BYTES: Final = 512
_ENTRY_BYTES: Final = 64
"""What a route, and an entry in a caller's request, weigh. Rather too much than too little."""


@dataclass(frozen=True, slots=True)
class Route:
    """From a name on the door to one tool, with all that a call needs looked up beforehand."""

    server_id: str
    tool: ToolDefinition
    upstream_name: msgspec.Raw
    layer: str
    rule: str
    """The layer and rule that admitted it."""

    @property
    def upstream_uri(self) -> str:
        """What its server calls a resource."""
        return msgspec.json.decode(self.upstream_name, type=str)


class View:
    """What one caller sees, from one snapshot."""

    __slots__ = (
        "__weakref__",
        "_on_growth",
        "_pages",
        "caller",
        "injections",
        "is_partial",
        "page_size",
        "revision",
        "routes",
        "scope",
        "size",
    )

    def __init__(
        self,
        caller: Caller,
        scope: Scope,
        snapshot: Snapshot,
        *,
        page_size: int,
        on_growth: Callable[["View", int], None],
    ) -> None:
        self.caller = caller
        # Without its decisions, one for each tool there is: who wants to know why composes it again.
        self.scope = replace(scope, decisions=())
        self.revision = snapshot.revision
        self.page_size = page_size
        self.routes = _routes(caller, scope, snapshot)
        self.is_partial = any(snapshot.servers[one].state == "pending" for one in scope.servers)
        self.injections = tuple(
            (server_id, "stale" if snapshot.servers[server_id].is_stale else "ok")
            for server_id in scope.servers
        )
        self.size = _ROUTE_BYTES * (1 + len(self.routes)) + _ENTRY_BYTES * _entries(caller)
        """In bytes, by estimate; grows with the lists that are encoded."""
        self._on_growth = on_growth
        self._pages: dict[Era, bytes] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the caller should know. Nothing while servers are still to be listed: it may not hold."""
        return () if self.is_partial else self.scope.warnings

    @property
    def signature(self) -> bytes:
        """Changes exactly when the list does, and is as short for a long one."""
        listed = "\n".join(f"{name} {route.tool.digest}" for name, route in self.routes.items())
        return hashlib.sha256(listed.encode()).digest()

    @property
    def signatures(self) -> Mapping[ListKind, bytes]:
        """Each changes exactly when that list does, and is as short for a long one."""
        return {"tools": self.signature}

    @property
    def features(self) -> frozenset[str]:
        """What the servers of the view announce."""
        return frozenset({"tools"})

    def find_resource(self, uri: str) -> Route | None:
        """The way to the resource the caller knows as `uri`."""
        del uri
        return None

    def page(self, kind: ListKind, era: Era, cursor: str | None, server_info: bytes) -> bytes:
        """One page of the tools, as the result of `tools/list`.

        A cursor names the last tool of the page before it, so a page never shows what this view
        does not hold, however the scope changed meanwhile. Only first pages are kept: callers make up
        cursors, and each would be another page.
        """
        if kind != "tools":
            raise MethodNotFound(f"no list of {kind}")
        if cursor is not None:
            return self._encode(era, _parse_cursor(cursor), server_info)
        page = self._pages.get(era)
        if page is None:
            page = self._pages[era] = self._encode(era, None, server_info)
            self.size += len(page)
            self._on_growth(self, len(page))
        return page

    def _encode(self, era: Era, after: str | None, server_info: bytes) -> bytes:
        names = [name for name in self.routes if after is None or name > after]
        shown = names[: self.page_size]
        more = len(names) > len(shown)
        tools = [encode_definition(self.routes[name].tool, name, era=era) for name in shown]
        return encode_page(
            tools,
            era=era,
            next_cursor=_encode_cursor(shown[-1]) if more else None,
            ttl_ms=0 if self.is_partial else TTL_MS,
            meta=self._meta(era, server_info),
        )

    def _meta(self, era: Era, server_info: bytes) -> dict[str, Any]:
        meta: dict[str, Any] = {SERVER_INFO_KEY: msgspec.Raw(server_info)} if era == "modern" else {}
        return meta | {WARNINGS_KEY: self.warnings} if self.warnings else meta


def _entries(caller: Caller) -> int:
    request = caller.request
    return sum(len(part or ()) for part in (request.servers, request.tools, request.allow, request.deny))


def _routes(caller: Caller, scope: Scope, snapshot: Snapshot) -> Mapping[str, Route]:
    admitted = {(one.server_id, one.tool): one for one in scope.decisions if one.allowed}
    routes = {}
    for ref in scope.tools:
        tool = snapshot.servers[ref.server_id].tools[ref.name]
        name = ref.name if caller.only_server else door_name(ref)
        decision = admitted[ref.server_id, ref.name]
        routes[name] = Route(
            server_id=ref.server_id,
            tool=tool,
            upstream_name=msgspec.Raw(msgspec.json.encode(ref.name)),
            layer=decision.layer,
            rule=decision.rule,
        )
    return dict(sorted(routes.items()))


def _encode_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as exc:
        raise InvalidParams("the cursor is not one of this gateway's") from exc
