"""Routes from a caller's names and URIs to the tools, prompts and resources of servers, made once per view.

Resources keep their servers' URIs, because results of tools refer to them. If several servers of a view list
the same URI, each is listed under an alias that names its server. Any resource can be read by its alias. A
listed URI leads to its server. An unlisted URI must match a template of exactly one server, or be readable at
exactly one server. Policy decides on it as written and in normal form, so that no spelling evades a rule.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from toolgate.catalog.find_tools import FIND_TOOLS
from toolgate.catalog.listings import MAX_URI_BYTES, SCHEME, Uri, UriTemplate
from toolgate.catalog.naming import join_tool_name, parse_joined_name
from toolgate.gateway.scope.caller import Caller
from toolgate.model.json_text import encode_raw
from toolgate.model.names import RESOURCE, ToolRef, kind_of
from toolgate.model.tools import Listing, Snapshot, ToolDefinition
from toolgate.policy.scope import ApprovalRequirement, Decision, Scope
from toolgate.redaction.arguments import DEFAULT_REDACTION, Redaction, compile_redaction


class Route(msgspec.Struct, frozen=True, gc=False):
    """The route to one tool, prompt or resource, with everything that a request for it needs."""

    server_id: str
    name: str
    """Its name in rules, records and the audit log: the tool's, `prompt:<name>`, or `resource:<uri>`."""
    upstream_name: msgspec.Raw
    """Its name at the server."""
    layer: str
    rule: str
    """The layer and rule that admitted it."""
    label: str
    """Its label in metrics. There are about as many labels as tools."""
    digest: str = ""
    """The digest of its definition; empty for an unlisted resource."""
    tool: ToolDefinition | None = None
    listing: Listing | None = None
    approval: ApprovalRequirement | None = None
    """The rule that requires an approval of each call, if there is one."""
    redaction: Redaction = DEFAULT_REDACTION
    """Which of its arguments may be audited."""
    shadow: str = ""
    """The rule that would deny it if the task were not in shadow mode."""
    shadow_reason: str = ""

    @property
    def upstream_uri(self) -> str:
        """The URI of a resource at its server."""
        return self.name[len(RESOURCE) :]


def route_to(
    decision: Decision,
    definition: ToolDefinition | Listing | None = None,
    *,
    approval: ApprovalRequirement | None = None,
    redaction: Redaction = DEFAULT_REDACTION,
) -> Route:
    """The route to the tool, prompt or resource that `decision` allows."""
    name = decision.tool or ""
    kind = kind_of(name)
    native = definition.native_name if isinstance(definition, ToolDefinition) else ""
    return Route(
        server_id=decision.server_id,
        name=name,
        upstream_name=encode_raw(native or name[len(kind) :]),
        layer=decision.layer,
        rule=decision.rule,
        label=f"{kind}*" if kind else name,
        digest="" if definition is None else definition.digest,
        tool=definition if isinstance(definition, ToolDefinition) else None,
        listing=definition if isinstance(definition, Listing) else None,
        approval=approval,
        redaction=redaction,
        shadow="" if decision.shadow is None else decision.shadow.rule,
        shadow_reason="" if decision.shadow is None else decision.shadow.reason or "",
    )


FIND_ROUTES: Final[Mapping[str, Route]] = {
    name: Route("", name, encode_raw(name), layer="", rule="", label=name, digest=tool.digest, tool=tool)
    for name, tool in sorted(FIND_TOOLS.items())
}
"""The gateway's find tools, which lead to no server."""


def allowed_decisions(scope: Scope) -> Mapping[ToolRef, Decision]:
    return {
        ToolRef(one.server_id, one.tool): one
        for one in scope.decisions
        if one.allowed and one.tool is not None
    }


def named_routes(
    caller: Caller,
    refs: Iterable[ToolRef],
    scope: Scope,
    snapshot: Snapshot,
    admitted: Mapping[ToolRef, Decision],
) -> Mapping[str, Route]:
    """Routes to tools or prompts of a scope by the caller's names, sorted."""
    redactions = redactions_of(scope, snapshot)
    routes = {}
    for ref in refs:
        offer, kind = snapshot.servers[ref.server_id], kind_of(ref.name)
        own_name = ref.name[len(kind) :]
        routes[caller_name(caller, ToolRef(ref.server_id, own_name))] = route_to(
            admitted[ref],
            offer.prompts[own_name] if kind else offer.tools[own_name],
            approval=scope.approvals.get(ref),
            redaction=redactions[ref.server_id],
        )
    return dict(sorted(routes.items()))


def redactions_of(scope: Scope, snapshot: Snapshot) -> Mapping[str, Redaction]:
    return {
        server_id: compile_redaction(snapshot.redaction, snapshot.servers[server_id].record.redaction)
        for server_id in scope.servers
    }


def guess_ref(caller: Caller, name: str) -> ToolRef | None:
    """The tool or prompt that an unknown name most likely refers to. None for a URI: its server is
    unclear."""
    kind = kind_of(name)
    own_name = name[len(kind) :]
    if kind == RESOURCE:
        return None
    ref = ToolRef(caller.only_server, own_name) if caller.only_server else parse_joined_name(own_name)
    return None if ref is None else ToolRef(ref.server_id, kind + ref.name)


def caller_name(caller: Caller, ref: ToolRef) -> str:
    return ref.name if caller.only_server else join_tool_name(ref)


Decide = Callable[[ToolRef], Decision]
"""Whether the caller may use one resource, listed or not."""

ALIAS: Final = "toolgate://s/"
_MAX_ALIAS_CHARS: Final = len(ALIAS) + 41 + 3 * MAX_URI_BYTES
"""An alias holds a server id (40) and a URI with each byte encoded as three."""
_MAX_DECODED: Final = 4  # levels of percent-encoding: a URI with more looks like an evasion
_SEPARATOR: Final = re.compile(r"[/?#;]")
_SLASHES: Final = re.compile(r"(?<!:)//+")
_HERE: Final = re.compile(r"(?<=/)\./|(?<=/)\.$")


def normalize_uri(uri: str) -> str | None:
    """The form in which a server may read `uri`; None if it cannot be known: it leads upwards or has a NUL.

    For matching rules only: two different resources may have the same normal form.
    """
    text = uri
    for _ in range(_MAX_DECODED):
        encoded, text = text, unquote(text)
        if encoded == text:
            break
    else:
        return None
    if not uri.isprintable() or "\0" in text:
        return None
    text = text.replace("\\", "/")
    if ".." in _SEPARATOR.split(text):
        return None
    scheme, colon, rest = text.partition(":")
    if not colon:
        return _collapse_slashes(text)
    if not rest.startswith("//"):
        return f"{scheme.lower()}:{_collapse_slashes(rest)}"
    host, slash, path = rest[2:].partition("/")
    host = "" if host.lower() == "localhost" else host
    return f"{scheme.lower()}://{_collapse_slashes(host + slash + path)}"


def _collapse_slashes(path: str) -> str:
    return _SLASHES.sub("/", _HERE.sub("", _SLASHES.sub("/", path)))


def alias_of(server_id: str, uri: str) -> str:
    """The URI that names both a server and its resource."""
    return f"{ALIAS}{server_id}/{quote(uri, safe='')}"


def decide_unlisted(decide: Decide, server_id: str, uri: str) -> Decision | None:
    """The decision on an unlisted URI, as written and in normal form. None: it has no normal form."""
    plain = normalize_uri(uri)
    if plain is None or len(uri.encode(errors="replace")) > MAX_URI_BYTES:
        return None
    decision = decide(ToolRef(server_id, RESOURCE + plain))
    return decide(ToolRef(server_id, RESOURCE + uri)) if decision.allowed else decision


class ResourceRoutes:
    """The resources of one view."""

    def __init__(
        self, scope: Scope, snapshot: Snapshot, admitted: Mapping[ToolRef, Decision], decide: Decide
    ) -> None:
        servers = snapshot.servers
        self._redactions = redactions_of(scope, snapshot)

        def build(refs: Iterable[ToolRef], kind: str) -> dict[ToolRef, Route]:
            found = {}
            for ref in refs:
                uri = ref.name[len(RESOURCE) :]
                listing = getattr(servers[ref.server_id], kind)[uri]
                found[ToolRef(ref.server_id, uri)] = self._route(admitted[ref], listing)
            return found

        resources, templates = build(scope.resources, "resources"), build(scope.templates, "templates")
        self._shared = _shared_uris(resources)
        self.listed = _by_caller_uri(resources, self._shared, alias_of)
        """The routes by the URIs that the view lists, sorted."""
        # An alias contains a template unencoded: clients encode the values that they put into expressions.
        self.templates = _by_caller_uri(
            templates, _shared_uris(templates), lambda server_id, text: f"{ALIAS}{server_id}/{text}"
        )
        self._by_ref = templates | resources
        self._matchers = tuple((ref.server_id, UriTemplate(ref.name)) for ref in templates)
        self._offering = tuple(one for one in scope.servers if "resources" in servers[one].features)
        self._decide = decide

    def find(self, uri: str) -> Route | None:
        """The route of the resource or template that the caller knows as `uri`."""
        listed = self.listed.get(uri) or self.templates.get(uri)
        if listed is not None:
            return listed
        if len(uri) > _MAX_ALIAS_CHARS:
            return None
        if uri.startswith(ALIAS):
            server_id, _, rest = uri[len(ALIAS) :].partition("/")
            # A URI with a colon is not encoded.
            ref = ToolRef(server_id, rest if SCHEME.match(rest) else unquote(rest))
            return self._by_ref.get(ref) or self._find_unlisted([server_id], ref.name)
        if uri in self._shared:
            return None
        matching = set()
        if self._matchers and len(uri) <= MAX_URI_BYTES:
            subject = Uri(uri)
            matching = {server_id for server_id, template in self._matchers if template.matches(subject)}
        return self._find_unlisted(matching or self._offering, uri)

    def _find_unlisted(self, server_ids: Iterable[str], uri: str) -> Route | None:
        decisions = [decide_unlisted(self._decide, one, uri) for one in server_ids if one in self._offering]
        allowed = [decision for decision in decisions if decision is not None and decision.allowed]
        return self._route(allowed[0]) if len(allowed) == 1 else None

    def _route(self, decision: Decision, listing: Listing | None = None) -> Route:
        return route_to(decision, listing, redaction=self._redactions[decision.server_id])


def _shared_uris(refs: Iterable[ToolRef]) -> frozenset[str]:
    return frozenset(uri for uri, uses in Counter(ref.name for ref in refs).items() if uses > 1)


def _by_caller_uri(
    routes: Mapping[ToolRef, Route], shared: Container[str], alias: Callable[[str, str], str]
) -> Mapping[str, Route]:
    """Routes by the URIs that the view lists: the servers', or aliases if several servers list the same."""
    named = {
        alias(*ref) if ref.name in shared or ref.name.startswith(ALIAS) else ref.name: route
        for ref, route in routes.items()
    }
    return dict(sorted(named.items()))
