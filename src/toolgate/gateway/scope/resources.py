"""URIs that a caller wrote, as plainly as they can be written: rules must hold however one is spelled.

Which server a URI leads to, for one caller.

Resources keep their servers' own URIs, for tools' results refer to them. Where several servers of a view list
the same one, each is listed under an alias that names its server; an alias is understood for any resource.
What is listed leads to its server. Anything else has to fit a template of one server alone, or be left to the
one server that could have it, and is decided on by itself, as it is written and as plainly as it can be: no
rule is got round by guessing.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from toolgate.catalog.listings import MAX_URI_BYTES, SCHEME, Uri, UriTemplate
from toolgate.gateway.scope.routes import Route, redactions_of, route_to
from toolgate.model.names import RESOURCE, ToolRef
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import Listing
from toolgate.policy.scope import Decision, Scope

_MAX_DECODED: Final = 4
"""A URI that is encoded more often has something to hide."""
_SEPARATOR: Final = re.compile(r"[/?#;]")
_SLASHES: Final = re.compile(r"(?<!:)//+")
_HERE: Final = re.compile(r"(?<=/)\./|(?<=/)\.$")


def normalize_uri(uri: str) -> str | None:
    """What a server may take `uri` for. None where that may be anything: it leads upwards, or hides its end.

    Nobody else's URI is told from this one by it: it only serves to hold rules against.
    """
    text = _decoded(uri)
    if text is None or not uri.isprintable() or "\0" in text:
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


def _decoded(text: str) -> str | None:
    for _ in range(_MAX_DECODED):
        decoded = unquote(text)
        if decoded == text:
            return text
        text = decoded
    return None


def _collapse_slashes(path: str) -> str:
    return _SLASHES.sub("/", _HERE.sub("", _SLASHES.sub("/", path)))


Decide = Callable[[ToolRef], Decision]
"""Whether the caller may have one resource, listed or not."""

ALIAS: Final = "toolgate://s/"
_MAX_ALIAS_CHARS: Final = len(ALIAS) + 41 + 3 * MAX_URI_BYTES


def alias_of(server_id: str, uri: str) -> str:
    """The URI of one server's resource where the resource's own would not tell whose it is."""
    return f"{ALIAS}{server_id}/{quote(uri, safe='')}"


def template_alias_of(server_id: str, template: str) -> str:
    """As `alias_of`, but written out: what clients put into the expressions is encoded already."""
    return f"{ALIAS}{server_id}/{template}"


def parse_alias(text: str) -> ToolRef | None:
    """The server and the URI that an alias means, None for any other URI."""
    if not text.startswith(ALIAS):
        return None
    server_id, _, rest = text[len(ALIAS) :].partition("/")
    # Encoded, a URI has no colon left.
    return ToolRef(server_id, rest if SCHEME.match(rest) else unquote(rest))


def decide_unlisted(decide: Decide, server_id: str, uri: str) -> Decision | None:
    """Whether the caller may have a resource that its server does not list. None: it leads nowhere.

    It has to be admitted as it is written, and as plainly as it can be written.
    """
    plain = normalize_uri(uri)
    if plain is None or len(uri.encode(errors="replace")) > MAX_URI_BYTES:
        return None
    decision = decide(ToolRef(server_id, RESOURCE + plain))
    return decide(ToolRef(server_id, RESOURCE + uri)) if decision.allowed else decision


class ResourceRoutes:
    """The resources of one view."""

    __slots__ = (
        "_announcing",
        "_by_ref",
        "_decide",
        "_matchers",
        "_redactions",
        "_shared",
        "listed",
        "templates",
    )

    def __init__(
        self, scope: Scope, snapshot: Snapshot, admitted: Mapping[ToolRef, Decision], decide: Decide
    ) -> None:
        servers = snapshot.servers
        self._redactions = redactions_of(scope, snapshot)
        resources = {
            ToolRef(ref.server_id, uri): self._route(admitted[ref], servers[ref.server_id].resources[uri])
            for ref in scope.resources
            if (uri := ref.name[len(RESOURCE) :])
        }
        templates = {
            ToolRef(ref.server_id, uri): self._route(admitted[ref], servers[ref.server_id].templates[uri])
            for ref in scope.templates
            if (uri := ref.name[len(RESOURCE) :])
        }
        self._shared = _shared_uris(resources)
        self.listed = _by_caller_uri(resources, self._shared, alias_of)
        """By the URIs they are listed under, in their order."""
        self.templates = _by_caller_uri(templates, _shared_uris(templates), template_alias_of)
        self._by_ref = templates | resources
        self._matchers = tuple((ref.server_id, UriTemplate(ref.name)) for ref in templates)
        self._announcing = tuple(one for one in scope.servers if "resources" in servers[one].features)
        self._decide = decide

    def find(self, uri: str) -> Route | None:
        """The way to the resource, or to the template, that the caller knows as `uri`."""
        listed = self.listed.get(uri) or self.templates.get(uri)
        if listed is not None:
            return listed
        if len(uri) > _MAX_ALIAS_CHARS:
            return None
        alias = parse_alias(uri)
        if alias is not None:
            return self._by_ref.get(alias) or self._one_of([alias.server_id], alias.name)
        return None if uri in self._shared else self._one_of(self._candidates(uri), uri)

    def _candidates(self, uri: str) -> Iterable[str]:
        """The servers with a template that `uri` fits; where there is none, those that have resources."""
        if not self._matchers or len(uri) > MAX_URI_BYTES:
            return self._announcing
        subject = Uri(uri)
        fitting = {server_id for server_id, template in self._matchers if template.matches(subject)}
        return fitting or self._announcing

    def _one_of(self, server_ids: Iterable[str], uri: str) -> Route | None:
        """The way to the one of these servers whose `uri` the caller may have. None where there are more."""
        decisions = [decide_unlisted(self._decide, one, uri) for one in server_ids if one in self._announcing]
        allowed = [decision for decision in decisions if decision is not None and decision.allowed]
        return self._route(allowed[0]) if len(allowed) == 1 else None

    def _route(self, decision: Decision, listing: Listing | None = None) -> Route:
        return route_to(decision, listing, redaction=self._redactions[decision.server_id])


def _shared_uris(refs: Iterable[ToolRef]) -> frozenset[str]:
    """The URIs that several servers list."""
    return frozenset(uri for uri, uses in Counter(ref.name for ref in refs).items() if uses > 1)


def _by_caller_uri(
    routes: Mapping[ToolRef, Route], shared: Container[str], alias: Callable[[str, str], str]
) -> Mapping[str, Route]:
    """`routes` by what they are listed under: their own URIs, unless those would not tell whose they are."""
    named = {
        alias(*ref) if ref.name in shared or ref.name.startswith(ALIAS) else ref.name: route
        for ref, route in routes.items()
    }
    return dict(sorted(named.items()))
