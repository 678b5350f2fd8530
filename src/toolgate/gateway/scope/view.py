"""A compiled scope, ready to serve: routes by the caller's names, and lists that are encoded once.

Listed or found ⇔ callable: both read the same table. Callers choose which scopes they request, so the cache
of views is bounded.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.encoding import (
    compose_instructions,
    encode_definition,
    encode_listing,
    encode_page,
)
from toolgate.catalog.find_tools import FIND_INSTRUCTIONS, FIND_TOOLS
from toolgate.catalog.naming import join_tool_name
from toolgate.errors import InvalidParams
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.scope.caller import Caller, Mode
from toolgate.gateway.scope.routes import (
    FIND_ROUTES,
    Decide,
    ResourceRoutes,
    Route,
    allowed_decisions,
    named_routes,
)
from toolgate.gateway.scope.token_counts import TaskTokens
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import HolderQuotas
from toolgate.model.protocol import SERVER_INFO_KEY
from toolgate.model.tools import ListKind, Revision, ServerTools, Snapshot
from toolgate.policy.compose import summarize_exclusions
from toolgate.policy.rules import RegistryTotals
from toolgate.policy.scope import UNREACHED, Reason, Scope
from toolgate.telemetry import CallStats, Metrics

WARNINGS_KEY: Final = "toolgate/warnings"
PRICE_KEY: Final = "toolgate/price"
"""The tokens that the listed tools cost a model, and for viewers, the tokens of all registered tools."""
FIND_PRICE: Final = {"tools": len(FIND_TOOLS), "tokens": sum(tool.tokens for tool in FIND_TOOLS.values())}
TTL_MS: Final = 30_000  # how long a client may cache a list; listeners get `list_changed` sooner
_ROUTE_BYTES: Final = 512  # size of a route, a generous estimate
_ENTRY_BYTES: Final = 64  # size of an entry in a caller's request, a generous estimate
_POINTER_BYTES: Final = 8  # on a machine of 64 bits
_NEEDS_PATTERN: Final = {"prompts": PROMPT, "resources": RESOURCE}
"""Kinds that a server offers only if its record has a pattern for them."""


class ViewSettings(NamedTuple):
    """The values that a view needs in addition to its scope."""

    page_size: int
    decide: Decide
    """Decides on resources that no server lists."""
    on_growth: Callable[["View", int], None]
    quotas: tuple[HolderQuotas, ...] = ()
    """The quotas that count each call; empty for most callers."""
    tokens: TaskTokens | None = None
    """Counts the tokens of lists and results."""
    arms: tuple[CallStats, ...] = ()
    """Count calls by profile version, for each profile in a rollout; empty for most callers."""
    registered: RegistryTotals | None = None
    """The totals of all servers; None if the caller may not see them."""


class View:
    """The scope of one caller in one snapshot, ready to serve."""

    def __init__(self, caller: Caller, scope: Scope, snapshot: Snapshot, settings: ViewSettings) -> None:
        self.caller = caller
        self.quotas = settings.quotas
        self.tokens = TaskTokens() if settings.tokens is None else settings.tokens
        self.arms = settings.arms
        self._settings = settings
        self.is_audited = False
        """Whether this offer is in the audit log."""
        # Without its decisions, one for each registered tool: an explanation composes them again.
        self.scope = replace(scope, decisions=())
        self.excluded = summarize_exclusions(scope.decisions)
        self.revision = snapshot.revision
        admitted = allowed_decisions(scope)
        routes = named_routes(caller, scope.tools, scope, snapshot, admitted)
        is_finding = caller.mode_of(scope) == "find"
        self.routes: Mapping[str, Route] = routes
        if is_finding and not routes.keys().isdisjoint(FIND_ROUTES):
            # A server's tools with the names of find tools are called through `call_tool`.
            self.routes = {name: route for name, route in routes.items() if name not in FIND_ROUTES}
        """The tools that can be called by name, listed or not: a client may remember them."""
        self.found = routes if is_finding else None
        """The tools that the find tools search. None: tools are listed."""
        self.prompts = named_routes(caller, scope.prompts, scope, snapshot, admitted)
        resources = ResourceRoutes(scope, snapshot, admitted, settings.decide)
        self.resources, self.templates = resources.listed, resources.templates
        self.find_resource = resources.find
        self._tables: Mapping[ListKind, Mapping[str, Route]] = {
            "tools": FIND_ROUTES if is_finding else routes,
            "prompts": self.prompts,
            "resources": self.resources,
            "templates": self.templates,
        }
        servers = [snapshot.servers[server_id] for server_id in scope.servers]
        self._instructing = [offer for offer in servers if offer.instructions]
        self.is_partial = any(offer.state == "pending" for offer in servers)
        # Server id and status of each server when a list is sent, for metrics.
        self.injections = () if is_finding else tuple(_injections(scope, servers))
        self.features = frozenset(feature for offer in servers for feature in _shown_features(offer))
        """The features of the view's servers that the caller may use."""
        own = [fingerprint_of(caller.principal), caller.effective_task_id, caller.only_server, caller.request]
        self.session_key = f"~{sha256(msgspec.json.encode(own)).hexdigest()[:32]}"
        """The session id at servers that keep state per session, for a caller without a session."""
        self.size = self._estimate_size()
        """Estimated size in bytes; it grows as lists are encoded, and with the first search."""
        self.start_records: dict[tuple[str, str, str], bytes] = {}
        """The encoded audit fields that all calls of a tool share, by surface, server and tool."""
        self._pages: dict[tuple[ListKind, Revision], bytes] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the caller. Empty while servers are unlisted: the warnings could be wrong."""
        return () if self.is_partial else self.scope.warnings

    @property
    def profiles(self) -> str:
        """The profile versions that decided, in the form of the audit log."""
        return " ".join(map(str, self.scope.profiles))

    @property
    def instructions(self) -> str:
        """The `instructions` of the initialize result; may be empty."""
        notes = self.warnings if self.found is None else (FIND_INSTRUCTIONS, *self.warnings)
        if not self._instructing:
            return " ".join(notes)
        tables = (self.tools, self.prompts, self.resources, self.templates)
        seen = {route.server_id for table in tables for route in table.values()}
        servers = [one for one in self._instructing if one.record.server_id in seen]
        return compose_instructions(notes, servers, is_single=bool(self.caller.only_server))

    @property
    def tools(self) -> Mapping[str, Route]:
        """All tools of the scope by the caller's names, listed or searchable."""
        return self.routes if self.found is None else self.found

    @property
    def mode(self) -> Mode:
        return "list" if self.found is None else "find"

    @property
    def list_tokens(self) -> int:
        """The tokens that the view's list of tools costs a model."""
        return self.scope.tokens if self.found is None else FIND_PRICE["tokens"]

    @cached_property
    def names_by_key(self) -> Mapping[str, str]:
        """The caller's tool names, by the names that all callers share."""
        routes = self.tools.items()
        names = {join_tool_name(ToolRef(route.server_id, route.name)): name for name, route in routes}
        self._grow(2 * _ENTRY_BYTES * len(names))
        return names

    def is_settled(self, kind: ListKind) -> bool:
        """Whether that list is complete. The list of find tools always is."""
        return not self.is_partial or (kind == "tools" and self.found is not None)

    @cached_property
    def signatures(self) -> Mapping[ListKind, bytes]:
        texts = {
            kind: "\n".join(f"{name} {route.digest}" for name, route in table.items())
            for kind, table in self._tables.items()
        }
        return {kind: sha256(text.encode()).digest() for kind, text in texts.items()}

    def page(self, kind: ListKind, revision: Revision, cursor: str | None, server_info: bytes) -> bytes:
        """One page of a list, as the result of its method.

        A cursor names the last entry of the previous page, so a page shows only entries of this view, even
        if the scope changed in between. Only first pages are cached: callers can invent cursors.
        """
        if cursor is not None:
            return self._encode(kind, revision, _parse_cursor(cursor), server_info)
        page = self._pages.get((kind, revision))
        if page is None:
            page = self._pages[kind, revision] = self._encode(kind, revision, None, server_info)
            self._grow(len(page))
        return page

    def _estimate_size(self) -> int:
        entries = len(self.found or ()) + sum(map(len, self._tables.values()))
        request = self.caller.request
        parts = (request.servers, request.tools, request.allow, request.deny)
        asked = _ENTRY_BYTES * sum(len(part or ()) for part in parts) + _POINTER_BYTES * len(self.injections)
        return _ROUTE_BYTES * (1 + entries + len(self.excluded.named)) + asked

    def _grow(self, size: int) -> None:
        self.size += size
        self._settings.on_growth(self, size)

    def _encode(self, kind: ListKind, revision: Revision, after: str | None, server_info: bytes) -> bytes:
        table = self._tables[kind]
        names = [name for name in table if after is None or name > after]
        shown = names[: self._settings.page_size]
        cursor = None
        if len(names) > len(shown):
            cursor = base64.urlsafe_b64encode(shown[-1].encode()).decode().rstrip("=")
        entries = [_encode_entry(kind, name, table[name], revision) for name in shown]
        meta, ttl_ms = self._meta(kind, revision, server_info), TTL_MS if self.is_settled(kind) else 0
        return encode_page(kind, entries, revision=revision, next_cursor=cursor, ttl_ms=ttl_ms, meta=meta)

    def _meta(self, kind: ListKind, revision: Revision, server_info: bytes) -> dict[str, Any]:
        meta: dict[str, Any] = {SERVER_INFO_KEY: msgspec.Raw(server_info)} if revision == "modern" else {}
        if kind == "tools":
            if self.found is not None:  # the same for every scope
                return meta | {PRICE_KEY: FIND_PRICE}
            price = {"tools": len(self.scope.tools), "tokens": self.scope.tokens}
            registered = self._settings.registered
            meta[PRICE_KEY] = price if registered is None else {**price, "of": registered._asdict()}
        return meta | {WARNINGS_KEY: self.warnings} if self.warnings else meta


def count_scope(metrics: Metrics, caller: Caller, scope: Scope, snapshot: Snapshot) -> None:
    # The registry bounds the ids in records; requests can contain any number of other ids.
    invented = caller.request.named_servers - snapshot.servers.keys()
    for decision in scope.decisions:
        if decision.reason:
            known = "" if decision.server_id in invented else decision.server_id
            metrics.denials[known, decision.reason] += 1
    metrics.effective_servers[caller.effective_task_id or ""] = len(scope.servers)
    metrics.empty_scopes += not scope.tools
    metrics.scope_tools.add(len(scope.tools))
    metrics.scope_tokens.add(scope.tokens)


def _encode_entry(kind: ListKind, name: str, route: Route, revision: Revision) -> bytes:
    if route.tool is not None:
        return encode_definition(route.tool, name, revision=revision)
    assert route.listing is not None  # listed entries have one or the other
    return encode_listing(route.listing, name, kind=kind)


def _shown_features(offer: ServerTools) -> frozenset[str]:
    """The features of a server, without the kinds that its record hides from all callers."""
    kinds = {kind_of(pattern) for pattern in offer.record.allowed_tools}
    hidden = {feature for feature, kind in _NEEDS_PATTERN.items() if kind not in kinds}
    return offer.features - hidden


def _injections(scope: Scope, servers: Sequence[ServerTools]) -> Iterator[tuple[str, str]]:
    """The servers of a scope, each with its status. Unregistered servers have no name."""
    for offer in servers:
        is_listed = offer.state != "pending" or offer.tools
        status = "success" if is_listed else "failed"
        yield _injection(offer.record.server_id, "stale" if offer.is_stale else status)
    for one in scope.decisions:
        if one.tool is None and not one.allowed:
            server_id = "" if one.reason is Reason.UNKNOWN_SERVER else one.server_id
            yield _injection(server_id, "failed" if one.reason in UNREACHED else "denied")


@lru_cache(maxsize=65_536)
def _injection(server_id: str, status: str) -> tuple[str, str]:
    """Cached for all views: each may leave out thousands of servers."""
    return server_id, status


def _parse_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as exc:
        raise InvalidParams("invalid cursor") from exc


MAX_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Estimated size of all views together. A dropped view costs its caller one compilation (about 1 ms)."""


@dataclass(slots=True)
class ViewCache:
    """Views by caller. Drops the oldest while all together are too large."""

    max_bytes: int = MAX_CACHE_BYTES
    size: int = 0
    """Estimated size in bytes."""
    views: dict[Caller, View] = field(default_factory=dict)

    def add(self, view: View) -> None:
        self.views[view.caller] = view
        self._grow(view.size)

    def on_growth(self, view: View, grown: int) -> None:
        """A view has grown. Ignored if the view was dropped meanwhile."""
        if self.views.get(view.caller) is view:
            self._grow(grown)

    def drop(self, principal_ids: AbstractSet[str]) -> None:
        for caller in [one for one in self.views if one.principal.id in principal_ids]:
            self.size -= self.views.pop(caller).size

    def clear(self) -> None:
        self.views.clear()
        self.size = 0

    def _grow(self, grown: int) -> None:
        self.size += grown
        while self.size > self.max_bytes and len(self.views) > 1:
            oldest = self.views.pop(next(iter(self.views)))
            self.size -= oldest.size
