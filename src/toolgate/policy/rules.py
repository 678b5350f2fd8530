"""The layers as two flat lists of rules: which servers pass, and which of their tools.

A key's ceiling, a task, a profile, its overrides and a request all have the same shape, a selection. This
module turns each into rules that know their layer, the reason they exclude with, and the name people know
them by. A rule can only take away: there must never be one that lets through what another excludes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from toolgate.model.effects import Effects
from toolgate.model.names import ToolRef
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import Selection
from toolgate.policy.patterns import Patterns
from toolgate.policy.scope import Decision, EffectiveFilter, Layer, Reason

Compile = Callable[[tuple[str, ...]], Patterns]


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


class Names(NamedTuple):
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
def compiled(texts: tuple[str, ...]) -> Patterns:
    """The patterns of a stored record, compiled once. Not for requests: callers must not fill the cache."""
    return Patterns.of(texts)


def selection_rules(
    layer: Layer, selection: Selection, names: Names, *, compile_patterns: Compile = compiled
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


def closed(layer: Layer, name: str) -> Rules:
    """A rule that no server passes."""
    return Rules((ServerRule(layer=layer, reason=_REASONS[layer].server, name=name, ids=frozenset()),))
