"""Layers as two flat lists of rules, and what servers offer to them.

A key's ceiling, a task, a profile, its overrides and a request all have the shape of a selection. Each
becomes rules that know their layer, the reason they exclude with, and their name for people. A rule can only
narrow: none may ever allow what another excludes.
"""

from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from toolgate.model.effects import UNSTATED, Effects
from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.servers import ServerRecord
from toolgate.model.snapshot import Pin, Snapshot
from toolgate.model.tasks import Selection
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.policy.patterns import Patterns
from toolgate.policy.scope import Decision, EffectiveFilter, Layer, Reason, deny

CompilePatterns = Callable[[tuple[str, ...]], Patterns]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule:
    """Admits the servers in `ids` that have one of `tags`, but not `excluded`. None: any."""

    layer: Layer
    reason: Reason
    name: str
    ids: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()

    def admits(self, record: ServerRecord) -> bool:
        if record.server_id in self.excluded:
            return False
        if self.ids is not None and record.server_id not in self.ids:
            return False
        return self.tags is None or not self.tags.isdisjoint(record.tags)

    def exclude(self, server_id: str) -> Decision:
        return deny(server_id, None, self.layer, self.reason, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """An allowlist or denylist of one layer, for tools, prompts and resources alike."""

    layer: Layer
    reason: Reason
    name: str
    patterns: Patterns
    is_deny: bool = False
    is_about_tools: bool = False
    """It selects tools, and does not apply to prompts and resources."""

    @property
    def names_servers(self) -> bool:
        """Whether it admits only names whose pattern has a server."""
        return not self.is_deny and not self.patterns.has_bare

    @property
    def effective_filter(self) -> EffectiveFilter:
        return EffectiveFilter(self.layer, self.name, self.patterns.texts, self.is_deny)

    def find_match(self, ref: ToolRef, native_name: str, effects: Effects) -> str | None:
        """The pattern that matches `ref`, whose approved definition has these `effects`."""
        return self.patterns.first_match(ref, native_name, effects=effects, is_deny=self.is_deny)

    def decide(self, ref: ToolRef, match: str | None, effects: Effects, *, allowed: bool) -> Decision:
        """The decision of this rule on `ref`, by its pattern `match`, if one matched."""
        rule = self.name if match is None else f"{self.name} `{match}`"
        if self.patterns.has_effects:
            rule += self.patterns.explain_effects(ref, match, effects)
        return Decision(
            server_id=ref.server_id,
            tool=ref.name,
            allowed=allowed,
            layer=self.layer,
            reason=None if allowed else self.reason,
            rule=rule,
        )


class Rules(NamedTuple):
    """The rules of one or several layers, in their order."""

    servers: tuple[ServerRule, ...] = ()
    tools: tuple[ToolRule, ...] = ()

    def then(self, later: "Rules") -> "Rules":
        """These rules, and `later` after them."""
        return Rules(self.servers + later.servers, self.tools + later.tools)


class RuleNames(NamedTuple):
    """The names of the four lists of a selection, for people."""

    servers: str
    tags: str
    allow: str
    deny: str


class _Reasons(NamedTuple):
    server: Reason
    allow: Reason
    deny: Reason


_REASONS: Final[dict[Layer, _Reasons]] = {
    "key": _Reasons(Reason.NOT_ALLOWED_BY_KEY, Reason.NOT_ALLOWED_BY_KEY, Reason.NOT_ALLOWED_BY_KEY),
    "task": _Reasons(Reason.NOT_ALLOWED_BY_TASK, Reason.NOT_IN_TASK_ALLOWLIST, Reason.DENIED_BY_TASK),
    "request": _Reasons(Reason.NOT_REQUESTED, Reason.NOT_IN_REQUEST_ALLOWLIST, Reason.DENIED_BY_REQUEST),
}


@lru_cache(maxsize=4_096)
def compile_stored(texts: tuple[str, ...]) -> Patterns:
    """The patterns of a stored record, compiled once. Never for requests: callers would fill the cache."""
    return Patterns.of(texts)


def make_rules(
    layer: Layer,
    selection: Selection,
    names: RuleNames,
    *,
    compile_patterns: CompilePatterns = compile_stored,
) -> Rules:
    """`selection` as rules of `layer`: one for each of its lists that is present."""
    reasons = _REASONS[layer]
    servers: list[ServerRule] = []
    tools: list[ToolRule] = []
    if selection.servers is not None:
        ids = frozenset(selection.servers)
        servers.append(ServerRule(layer=layer, reason=reasons.server, name=names.servers, ids=ids))
    if selection.tags is not None:
        tags = frozenset(selection.tags)
        servers.append(ServerRule(layer=layer, reason=reasons.server, name=names.tags, tags=tags))
    if selection.allow is not None:
        allowed = compile_patterns(selection.allow)
        tools.append(ToolRule(layer=layer, reason=reasons.allow, name=names.allow, patterns=allowed))
    if selection.deny:
        denied = compile_patterns(selection.deny)
        tools.append(
            ToolRule(layer=layer, reason=reasons.deny, name=names.deny, patterns=denied, is_deny=True)
        )
    return Rules(tuple(servers), tuple(tools))


def deny_all(layer: Layer, name: str) -> Rules:
    """A rule that admits no server."""
    return Rules((ServerRule(layer=layer, reason=_REASONS[layer].server, name=name, ids=frozenset()),))


class RegistryTotals(NamedTuple):
    """The totals of all servers."""

    tools: int
    tokens: int
    """Of the definitions that can be offered, for a model."""


def count_registered(platform: Snapshot) -> RegistryTotals:
    """The totals. It reads every server, so keep it off the call path."""
    offers = platform.servers.values()
    return RegistryTotals(
        tools=sum(len(list_tool_names(offer)) for offer in offers),
        tokens=sum(tool.tokens for offer in offers for tool in offer.tools.values()),
    )


def list_tool_names(offer: ServerTools) -> Collection[str]:
    """Every tool that the server lists, including those with an invalid definition."""
    names = offer.tools.keys()
    return names | {name for name in offer.quarantined if not kind_of(name)} if offer.quarantined else names


def list_names(offer: ServerTools) -> Collection[str]:
    """Everything that the server lists; prompts, resources and templates with their prefix."""
    names: AbstractSet[str] = offer.tools.keys()
    if offer.quarantined:
        names = names | offer.quarantined.keys()
    if offer.prompts:
        names = names | {PROMPT + name for name in offer.prompts}
    if offer.resources or offer.templates:
        names = names | {RESOURCE + uri for uri in (*offer.resources, *offer.templates)}
    return names


def find_matching(platform: Snapshot, patterns: Patterns, *, is_deny: bool) -> Iterator[ToolRef]:
    """All registered names that `patterns` match, by server and name. It reads every server.

    `is_deny`: as a denylist, which for effects matches more.
    """
    for server_id, offer in sorted(platform.servers.items()):
        if patterns.has_bare or patterns.names_server(server_id):
            yield from find_matching_of_server(offer, platform.pins.get(server_id), patterns, is_deny=is_deny)


def find_matching_of_server(
    offer: ServerTools, pin: Pin | None, patterns: Patterns, *, is_deny: bool
) -> Iterator[ToolRef]:
    """The names of a server that `patterns` match, sorted."""
    server_id = offer.record.server_id
    for name in sorted(list_names(offer)):
        ref = ToolRef(server_id, name)
        effects = read_approved_effects(offer, pin, name)
        if (
            patterns.first_match(ref, find_native_name(offer, name), effects=effects, is_deny=is_deny)
            is not None
        ):
            yield ref


def find_native_name(offer: ServerTools, name: str) -> str:
    """The server's name of a tool that has an alias; else empty."""
    tool = offer.tools.get(name)
    return "" if tool is None else tool.native_name


def find_pin_violation(pin: Pin, name: str, listed: ToolDefinition | None) -> str:
    """Why a tool of a pinned server is quarantined; empty if it is as approved, or not yet listed."""
    approved = pin.tools.get(name)
    if approved is None:
        return "pin: not approved"
    if name in pin.changed:
        return "pin: its definition changed after it was approved"
    if listed is not None and listed.digest != approved:
        return "pin: its definition is not the approved one"
    return ""


def read_approved_effects(offer: ServerTools, pin: Pin | None, name: str) -> Effects:
    """The effects of a tool by its approved definition; any other definition states nothing."""
    tool = offer.tools.get(name)
    if tool is None or (pin is not None and find_pin_violation(pin, name, tool)):
        return UNSTATED
    return tool.effects


def is_unlisted(offer: ServerTools) -> bool:
    """Whether no list of the server is known, now or from an earlier run: it may have anything."""
    return offer.state != "ready" and not (offer.tools or offer.prompts or offer.resources or offer.templates)


def can_match(offer: ServerTools, patterns: Patterns, *, is_deny: bool) -> bool:
    """Whether a name of the server matches or, while its lists are unknown, could. Pins do not count."""
    server_id = offer.record.server_id
    if is_unlisted(offer):
        return patterns.has_bare or patterns.names_server(server_id)
    names = list_tool_names(offer) if patterns.are_about_tools else list_names(offer)
    if patterns.matches_any(server_id, names):
        return True
    if patterns.has_effects and _has_effect(offer, patterns, is_deny=is_deny):
        return True
    natives = [tool.native_name for tool in offer.tools.values() if tool.native_name]
    return bool(natives) and patterns.matches_any(server_id, [one for one in natives if not kind_of(one)])


def _has_effect(offer: ServerTools, patterns: Patterns, *, is_deny: bool) -> bool:
    """Whether a tool of the server matches an effect. Equal annotations are checked once."""
    found = {tool.effects for tool in offer.tools.values()}
    if any(not kind_of(name) for name in offer.quarantined):
        found.add(UNSTATED)
    return any(patterns.match_effect(offer.record.server_id, one, is_deny=is_deny) for one in found)
