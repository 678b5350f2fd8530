"""Which tools of a scope are called only after a person has agreed, and by which rule.

A server's record says it for its tools: `never`, `always`, or `policy`, which asks for every tool that is not
marked as one that only reads. A task may ask for more, and for no less. Each of them may say that whoever
calls is not the one who is asked.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from toolgate.model.names import ToolRef
from toolgate.model.servers import Approval, ApprovalPolicy
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ToolDefinition
from toolgate.policy.patterns import has_wildcard
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
        wild = {name: asked for name, asked in policy.per_tool.items() if has_wildcard(name)}
        self._patterns = [
            (asked, compiled(tuple(name for name, said in wild.items() if said == asked)))
            for asked in _STRICTEST_FIRST
            if asked in wild.values()
        ]

    def demand_for(self, tool: ToolDefinition) -> Demand | None:
        """What is asked for before a call of `tool`. None: nothing is."""
        asked, name = self._of_server(tool.ref, tool.native_name)
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

    def _of_server(self, ref: ToolRef, native: str) -> tuple[Approval, str]:
        """A tool's own name wins; of patterns, the strictest that matches."""
        policy = self._policy
        if ref.name in policy.per_tool:
            return policy.per_tool[ref.name], f"per_tool `{ref.name}`"
        for asked, patterns in self._patterns:
            if (pattern := patterns.first_match(ref, native)) is not None:
                return asked, f"per_tool `{pattern}`"
        return policy.default, "default"
