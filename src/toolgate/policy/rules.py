"""Compiles layers into two flat lists of rules, and matches them with what servers offer.

A key's ceiling, a task, a profile, its overrides and a request all have the shape of a selection. Each
becomes rules with their layer, the reason of an exclusion, and a name for people. A rule can only narrow: it
never allows what another rule excludes.
"""

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from toolgate.model.names import PROMPT, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Ceiling
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import Selection
from toolgate.model.tools import UNSTATED, Effects, Pin, ServerTools, Snapshot, ToolDefinition
from toolgate.policy.patterns import Patterns
from toolgate.policy.scope import Decision, Layer, Reason, deny


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule:
    """Admits the servers in `ids` with one of `tags`, except `excluded`. None: any."""

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
    """An allowlist or denylist of one layer, for tools, prompts and resources."""

    layer: Layer
    reason: Reason
    name: str
    patterns: Patterns
    is_deny: bool = False
    is_about_tools: bool = False
    """Whether it selects tools only, and does not apply to prompts and resources."""

    @property
    def names_servers(self) -> bool:
        """Whether it admits only names whose pattern has a server."""
        return not self.is_deny and not self.patterns.has_bare

    def find_match(self, ref: ToolRef, native_name: str, effects: Effects) -> str | None:
        return self.patterns.first_match(ref, native_name, effects=effects, is_deny=self.is_deny)

    def decide(self, ref: ToolRef, match: str | None, effects: Effects, *, allowed: bool) -> Decision:
        """The decision of this rule on `ref`. `match` is the pattern that matched, if any."""
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
    """The rules of one or several layers, in order."""

    servers: tuple[ServerRule, ...] = ()
    tools: tuple[ToolRule, ...] = ()

    def then(self, later: "Rules") -> "Rules":
        return Rules(self.servers + later.servers, self.tools + later.tools)


class RuleNames(NamedTuple):
    """The names of the four lists of a selection, for people."""

    servers: str
    tags: str
    allow: str
    deny: str


_REASONS: Final[dict[Layer, tuple[Reason, Reason, Reason]]] = {
    "key": (Reason.NOT_ALLOWED_BY_KEY, Reason.NOT_ALLOWED_BY_KEY, Reason.NOT_ALLOWED_BY_KEY),
    "task": (Reason.NOT_ALLOWED_BY_TASK, Reason.NOT_IN_TASK_ALLOWLIST, Reason.DENIED_BY_TASK),
    "request": (Reason.NOT_REQUESTED, Reason.NOT_IN_REQUEST_ALLOWLIST, Reason.DENIED_BY_REQUEST),
}
"""The reasons of lists of servers, of allowlists and of denylists."""


@lru_cache(maxsize=4_096)
def compile_stored(texts: tuple[str, ...]) -> Patterns:
    """The patterns of a stored record, compiled once. Never for requests: callers would fill the cache."""
    return Patterns(texts)


def make_rules(layer: Layer, selection: Selection, names: RuleNames, *, is_stored: bool = True) -> Rules:
    """`selection` as rules of `layer`: one for each list that is present."""
    outside, unlisted, denied = _REASONS[layer]
    compiled = compile_stored if is_stored else Patterns
    servers: list[ServerRule] = []
    tools: list[ToolRule] = []
    if (ids := selection.servers) is not None:
        servers.append(ServerRule(layer=layer, reason=outside, name=names.servers, ids=frozenset(ids)))
    if (tags := selection.tags) is not None:
        servers.append(ServerRule(layer=layer, reason=outside, name=names.tags, tags=frozenset(tags)))
    if (texts := selection.allow) is not None:
        tools.append(ToolRule(layer=layer, reason=unlisted, name=names.allow, patterns=compiled(texts)))
    if texts := selection.deny:
        patterns = compiled(texts)
        tools.append(ToolRule(layer=layer, reason=denied, name=names.deny, patterns=patterns, is_deny=True))
    return Rules(tuple(servers), tuple(tools))


def deny_all(layer: Layer, name: str) -> Rules:
    return Rules((ServerRule(layer=layer, reason=_REASONS[layer][0], name=name, ids=frozenset()),))


class RegistryTotals(NamedTuple):
    tools: int
    tokens: int
    """Tokens of the definitions that a model can be offered."""


def count_registered(platform: Snapshot) -> RegistryTotals:
    """The totals. This reads every server, so keep it off the call path."""
    offers = platform.servers.values()
    return RegistryTotals(
        tools=sum(len(list_tool_names(offer)) for offer in offers),
        tokens=sum(tool.tokens for offer in offers for tool in offer.tools.values()),
    )


def list_tool_names(offer: ServerTools) -> Collection[str]:
    """Every tool that the server lists, including tools with an invalid definition."""
    names = offer.tools.keys()
    return names | {name for name in offer.quarantined if not kind_of(name)} if offer.quarantined else names


def list_names(offer: ServerTools) -> Collection[str]:
    """Everything that the server lists. Prompts, resources and templates have their prefix."""
    names: AbstractSet[str] = offer.tools.keys()
    if offer.quarantined:
        names = names | offer.quarantined.keys()
    if offer.prompts:
        names = names | {PROMPT + name for name in offer.prompts}
    if offer.resources or offer.templates:
        names = names | {RESOURCE + uri for uri in (*offer.resources, *offer.templates)}
    return names


def find_matching(
    platform: Snapshot, patterns: Patterns, *, is_deny: bool, server_ids: Iterable[str] | None = None
) -> Iterator[ToolRef]:
    """The names that `patterns` match, by server and name. Without `server_ids` it reads every server.
    `is_deny`: match like a denylist, which for effects matches more."""
    for server_id in sorted(platform.servers if server_ids is None else server_ids):
        if patterns.has_bare or patterns.names_server(server_id):
            for name in sorted(list_names(platform.servers[server_id])):
                ref = ToolRef(server_id, name)
                native, effects = read_approved(platform, ref)
                if patterns.first_match(ref, native, effects=effects, is_deny=is_deny) is not None:
                    yield ref


def is_in_ceiling(
    ceiling: Ceiling, ref: ToolRef, *, task_id: str | None, effects: Effects, native_name: str = ""
) -> bool:
    """Whether the ceiling of a key admits `ref` under this task. `effects`: those of its approved definition,
    or UNSTATED. `native_name`: the server's name of a tool with an alias; patterns match either."""
    if ceiling.tasks is not None and task_id not in ceiling.tasks:
        return False
    if ceiling.servers is not None and ref.server_id not in ceiling.servers:
        return False
    lists = ((ceiling.allow, False), (ceiling.deny, True))
    return all(
        texts is None
        or (compile_stored(texts).first_match(ref, native_name, effects=effects, is_deny=is_deny) is None)
        is is_deny
        for texts, is_deny in lists
    )


def find_pin_violation(pin: Pin, name: str, listed: ToolDefinition | None) -> str:
    """Why a tool of a pinned server is quarantined; empty if it is as approved or not listed so far."""
    approved = pin.tools.get(name)
    if approved is None:
        return "pin: not approved"
    if name in pin.changed:
        return "pin: its definition changed after it was approved"
    if listed is not None and listed.digest != approved:
        return "pin: its definition is not the approved one"
    return ""


def read_approved(platform: Snapshot, ref: ToolRef) -> tuple[str, Effects]:
    """The inputs of patterns besides the name: a native name behind an alias, and the effects of the approved
    definition. Any other definition states nothing."""
    offer = platform.servers.get(ref.server_id)
    tool = None if offer is None else offer.tools.get(ref.name)
    if tool is None:
        return "", UNSTATED
    pin = platform.pins.get(ref.server_id)
    is_approved = pin is None or not find_pin_violation(pin, ref.name, tool)
    return tool.native_name, tool.effects if is_approved else UNSTATED


def is_unlisted(offer: ServerTools) -> bool:
    """Whether no list of the server is known, from now or an earlier run: it may have anything."""
    return offer.state != "ready" and not (offer.tools or offer.prompts or offer.resources or offer.templates)


def can_match(offer: ServerTools, patterns: Patterns, *, is_deny: bool) -> bool:
    """Whether a name of the server matches or, while its lists are unknown, could match. Pins do not
    count."""
    server_id = offer.record.server_id
    if is_unlisted(offer):
        return patterns.has_bare or patterns.names_server(server_id)
    names = list_tool_names(offer) if patterns.are_about_tools else list_names(offer)
    if patterns.matches_any(server_id, names):
        return True
    if patterns.has_effects:
        found = {tool.effects for tool in offer.tools.values()}  # equal annotations are checked once
        if any(not kind_of(name) for name in offer.quarantined):
            found.add(UNSTATED)
        if any(patterns.match_effect(server_id, one, is_deny=is_deny) for one in found):
            return True
    natives = [tool.native_name for tool in offer.tools.values() if tool.native_name]
    return bool(natives) and patterns.matches_any(server_id, [one for one in natives if not kind_of(one)])
