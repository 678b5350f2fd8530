"""A compiled scope made ready to serve: names to tools, and lists as bytes encoded once.

Listed ⇔ callable by construction: the same table answers both.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from toolgate.catalog.listing import SERVER_INFO_KEY, encode_definition, encode_page
from toolgate.catalog.naming import door_name
from toolgate.errors import InvalidParams
from toolgate.gateway.caller import Caller
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import Era, ToolDefinition
from toolgate.policy.scope import Scope
from toolgate.telemetry import CallStats, Metrics

WARNINGS_KEY: Final = "toolgate/warnings"
TTL_MS: Final = 30_000
"""How long a client may keep a list. `list_changed` tells those who listen sooner."""


@dataclass(frozen=True, slots=True)
class Route:
    """From a name on the door to one tool, with all that a call needs looked up beforehand."""

    server_id: str
    tool: ToolDefinition
    upstream_name: msgspec.Raw
    stats: CallStats
    rule: str


class View:
    """What one caller sees, from one snapshot."""

    __slots__ = ("_pages", "caller", "injections", "is_partial", "page_size", "revision", "routes", "scope")

    def __init__(
        self, caller: Caller, scope: Scope, snapshot: Snapshot, *, metrics: Metrics, page_size: int
    ) -> None:
        self.caller = caller
        self.scope = scope
        self.revision = snapshot.revision
        self.page_size = page_size
        self.routes = _routes(caller, scope, snapshot, metrics)
        self.is_partial = any(snapshot.servers[one].state == "pending" for one in scope.servers)
        self.injections = tuple(
            (server_id, "stale" if snapshot.servers[server_id].is_stale else "ok")
            for server_id in scope.servers
        )
        self._pages: dict[tuple[Era, str], bytes] = {}

    @property
    def signature(self) -> tuple[tuple[str, str], ...]:
        """Changes exactly when the list does."""
        return tuple((name, route.tool.digest) for name, route in self.routes.items())

    def page(self, era: Era, cursor: str | None, server_info: bytes) -> bytes:
        """One page of the tools, as the result of `tools/list`.

        A cursor names the last tool of the page before it, so a page never shows what this view
        does not hold, however the scope changed meanwhile.
        """
        key = (era, cursor or "")
        page = self._pages.get(key)
        if page is None:
            page = self._encode(era, _parse_cursor(cursor), server_info)
            if len(self._pages) < 64:
                self._pages[key] = page
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
        return meta | {WARNINGS_KEY: self.scope.warnings} if self.scope.warnings else meta


def _routes(caller: Caller, scope: Scope, snapshot: Snapshot, metrics: Metrics) -> Mapping[str, Route]:
    rules = {(one.server_id, one.tool): one.rule for one in scope.decisions if one.allowed}
    routes = {}
    for ref in scope.tools:
        tool = snapshot.servers[ref.server_id].tools[ref.name]
        name = ref.name if caller.only_server else door_name(ref)
        routes[name] = Route(
            server_id=ref.server_id,
            tool=tool,
            upstream_name=msgspec.Raw(msgspec.json.encode(ref.name)),
            stats=metrics.tool(ref.server_id, ref.name),
            rule=rules.get((ref.server_id, ref.name), ""),
        )
    return dict(sorted(routes.items()))


def _encode_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as exc:
        raise InvalidParams("the cursor is not one of this gateway's") from exc
