"""The layers as two flat lists of rules: which servers pass, and which of their tools.

A key's ceiling, a task, a profile, its overrides and a request all have the same shape, a selection. This
module turns each into rules that know their layer, the reason they exclude with, and the name people know
them by. A rule can only take away: there must never be one that lets through what another excludes.

What a server offers, as rules see it: the names it lists, and whether a pattern could speak of one.
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
from toolgate.policy.scope import Decision, EffectiveFilter, Layer, Reason

CompilePatterns = Callable[[tuple[str, ...]], Patterns]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule:
    """Lets through the servers in `ids` that have one of `tags`, but not `excluded`. None: any."""

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
        return Decision(
            server_id=server_id,
            tool=None,
            allowed=False,
            layer=self.layer,
            reason=self.reason,
            rule=self.name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """An allowlist, or a denylist, of one layer. It decides on tools, prompts and resources alike."""

    layer: Layer
    reason: Reason
    name: str
    patterns: Patterns
    is_deny: bool = False
    is_about_tools: bool = False
    """It selects tools, and has no say in what else their servers show."""

    @property
    def names_servers(self) -> bool:
        """Whether it lets through nothing but what its patterns name together with a server."""
        return not self.is_deny and not self.patterns.has_bare

    @property
    def effective_filter(self) -> EffectiveFilter:
        return EffectiveFilter(self.layer, self.name, self.patterns.texts, self.is_deny)

    def find_match(self, ref: ToolRef, native_name: str, effects: Effects) -> str | None:
        """The pattern of this rule that speaks of `ref`, whose approved definition has these `effects`."""
        return self.patterns.first_match(ref, native_name, effects=effects, is_deny=self.is_deny)

    def decide(self, ref: ToolRef, match: str | None, effects: Effects, *, allowed: bool) -> Decision:
        """The decision this rule makes on `ref`, of which its pattern `match` spoke, if any did."""
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
    """What one or several layers say, in the order in which they are asked."""

    servers: tuple[ServerRule, ...] = ()
    tools: tuple[ToolRule, ...] = ()

    def then(self, later: "Rules") -> "Rules":
        return Rules(self.servers + later.servers, self.tools + later.tools)


class RuleNames(NamedTuple):
    """What people call the four lists of a selection."""

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
    """The patterns of a stored record, compiled once. Not for requests: callers must not fill the cache."""
    return Patterns.of(texts)


def make_rules(
    layer: Layer,
    selection: Selection,
    names: RuleNames,
    *,
    compile_patterns: CompilePatterns = compile_stored,
) -> Rules:
    """`selection` as rules of `layer`: one for each of its lists that is there."""
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
        allow = compile_patterns(selection.allow)
        tools.append(ToolRule(layer=layer, reason=reasons.allow, name=names.allow, patterns=allow))
    if selection.deny:
        deny = compile_patterns(selection.deny)
        tools.append(ToolRule(layer=layer, reason=reasons.deny, name=names.deny, patterns=deny, is_deny=True))
    return Rules(tuple(servers), tuple(tools))


def deny_all(layer: Layer, name: str) -> Rules:
    """A rule that no server passes."""
    return Rules((ServerRule(layer=layer, reason=_REASONS[layer].server, name=name, ids=frozenset()),))


class RegistryTotals(NamedTuple):
    """What all servers have together, whoever may see it."""

    tools: int
    tokens: int
    """What the definitions of those that can be offered cost a model."""


def count_registered(platform: Snapshot) -> RegistryTotals:
    """Looks at every server: not for what must be quick."""
    offers = platform.servers.values()
    return RegistryTotals(
        tools=sum(len(list_tool_names(offer)) for offer in offers),
        tokens=sum(tool.tokens for offer in offers for tool in offer.tools.values()),
    )


def list_tool_names(offer: ServerTools) -> Collection[str]:
    """Every tool the server lists, those with a refused definition included."""
    names = offer.tools.keys()
    return names | {name for name in offer.quarantined if not kind_of(name)} if offer.quarantined else names


def list_names(offer: ServerTools) -> Collection[str]:
    """Everything the server lists: tools, and prompts, resources and templates as policy names them."""
    names: AbstractSet[str] = offer.tools.keys()
    if offer.quarantined:
        names = names | offer.quarantined.keys()
    if offer.prompts:
        names = names | {PROMPT + name for name in offer.prompts}
    if offer.resources or offer.templates:
        names = names | {RESOURCE + uri for uri in (*offer.resources, *offer.templates)}
    return names


def find_matching(platform: Snapshot, patterns: Patterns, *, is_deny: bool) -> Iterator[ToolRef]:
    """All that is registered and that `patterns` speak of, by server and name. Looks at every server, too.

    `is_deny`: as a denylist reads them, which for effects matches more.
    """
    for server_id, offer in sorted(platform.servers.items()):
        if patterns.has_bare or patterns.names_server(server_id):
            yield from find_matching_of_server(offer, platform.pins.get(server_id), patterns, is_deny=is_deny)


def find_matching_of_server(
    offer: ServerTools, pin: Pin | None, patterns: Patterns, *, is_deny: bool
) -> Iterator[ToolRef]:
    """What of a server `patterns` speak of, by name."""
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
    """What the server itself calls a tool that has an alias; else empty."""
    tool = offer.tools.get(name)
    return "" if tool is None else tool.native_name


def find_pin_violation(pin: Pin, name: str, listed: ToolDefinition | None) -> str:
    """Why a tool of a pinned server is not offered; empty: it is as it was approved, as far as is known."""
    approved = pin.tools.get(name)
    if approved is None:
        return "pin: not approved"
    if name in pin.changed:
        return "pin: its definition changed after it was approved"
    if listed is not None and listed.digest != approved:
        return "pin: its definition is not the approved one"
    return ""


def read_approved_effects(offer: ServerTools, pin: Pin | None, name: str) -> Effects:
    """The effects of a tool by its approved definition. Of any other definition nothing counts."""
    tool = offer.tools.get(name)
    if tool is None or (pin is not None and find_pin_violation(pin, name, tool)):
        return UNSTATED
    return tool.effects


def is_unlisted(offer: ServerTools) -> bool:
    """Whether what the server has is not known, now or from an earlier time: it may have anything."""
    return offer.state != "ready" and not (offer.tools or offer.prompts or offer.resources or offer.templates)


def can_match(offer: ServerTools, patterns: Patterns, *, is_deny: bool) -> bool:
    """Whether something of the server matches or, as long as what it has is not known, could.

    Pins aside: what is not as approved is not offered, whatever it matches.
    """
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
    """Whether a tool of the server matches a pattern for an effect. Equal annotations are looked at once."""
    found = {tool.effects for tool in offer.tools.values()}
    if any(not kind_of(name) for name in offer.quarantined):
        found.add(UNSTATED)
    return any(patterns.match_effect(offer.record.server_id, one, is_deny=is_deny) for one in found)
