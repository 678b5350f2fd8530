"""Which tools of a scope are called only after a person has agreed, and by which rule.

A server's record says it for its tools: `never`, `always`, or `policy`, which asks for every tool that is not
marked as one that only reads. A task may ask for more, and for no less. Each of them may say that whoever
calls is not the one who is asked.

A pattern for an effect can make a rule stricter or more lenient than the default. Where a definition does not
state the effect, both readings are tried, and the stricter result counts.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from toolgate.model.names import ToolRef
from toolgate.model.servers import Approval, ApprovalPolicy
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ToolDefinition
from toolgate.policy.patterns import effect_of, has_wildcard
from toolgate.policy.rules import compiled
from toolgate.policy.scope import Demand, Layer

_NONE: Final[Mapping[ToolRef, Demand]] = MappingProxyType({})
_STRICTEST_FIRST: Final[tuple[Approval, ...]] = ("always", "policy", "never")


def needed_approvals(
    platform: Snapshot, tools: Sequence[ToolRef], *, by_task: Approval = "never", in_place: bool = True
) -> Mapping[ToolRef, Demand]:
    """Of `tools`, sorted by server: those that need an approval. `in_place`: what the task says of that."""
    needed: dict[ToolRef, Demand] = {}
    for server_id, refs in groupby(tools, key=lambda ref: ref.server_id):
        offer = platform.servers[server_id]
        policy = offer.record.approval_policy
        if by_task == "never" and policy.default == "never" and not policy.per_tool:
            continue
        rules = _Rules(policy, by_task, in_place=in_place and policy.in_place)
        for ref in refs:
            if (demand := rules.demand_for(offer.tools[ref.name])) is not None:
                needed[ref] = demand
    return needed or _NONE


class _Rules:
    """What a server and a task ask for together."""

    def __init__(self, policy: ApprovalPolicy, by_task: Approval, *, in_place: bool) -> None:
        self._policy = policy
        self._in_place = in_place
        self._by_task: Approval = by_task
        wild = {
            name: asked for name, asked in policy.per_tool.items() if has_wildcard(name) or effect_of(name)
        }
        self._patterns = [
            (asked, compiled(tuple(name for name, said in wild.items() if said == asked)))
            for asked in _STRICTEST_FIRST
            if asked in wild.values()
        ]

    def demand_for(self, tool: ToolDefinition) -> Demand | None:
        """What is asked for before a call of `tool`. None: nothing is."""
        asked, name = self._of_server(tool)
        found: tuple[tuple[Approval, Layer, str], ...] = (
            (asked, "platform", f"approval_policy {name}"),
            (self._by_task, "task", "mcp.approval_policy"),
        )
        for said, layer, rule in found:
            if said == "always":
                return Demand(layer, f"{rule}: always", self._in_place)
        for said, layer, rule in found:
            if said == "policy" and not tool.is_read_only:
                why = f"{rule}: policy, and the tool is not marked as read-only"
                return Demand(layer, why, self._in_place)
        return None

    def _of_server(self, tool: ToolDefinition) -> tuple[Approval, str]:
        """A tool's own name wins; of patterns, the strictest that matches."""
        policy, name = self._policy, tool.ref.name
        if name in policy.per_tool:
            return policy.per_tool[name], f"per_tool `{name}`"
        if not any(patterns.has_effects for _, patterns in self._patterns):
            return self._strictest(tool, is_deny=False)
        readings = [self._strictest(tool, is_deny=is_deny) for is_deny in (True, False)]
        return min(readings, key=lambda found: _STRICTEST_FIRST.index(found[0]))

    def _strictest(self, tool: ToolDefinition, *, is_deny: bool) -> tuple[Approval, str]:
        for asked, patterns in self._patterns:
            match = patterns.first_match(tool.ref, tool.native_name, effects=tool.effects, is_deny=is_deny)
            if match is not None:
                why = patterns.explain_effects(tool.ref, match, tool.effects)
                return asked, f"per_tool `{match}`{why}"
        return self._policy.default, "default"
