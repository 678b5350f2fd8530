"""What one chat request is served with: the model it asks, the scope it has, and how far it may go.

The scope is the one every door has: the same policy, the same view. Chat adds which upstream is asked,
whether tools are offered at all, and the names a model knows them by.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate.catalog.naming import make_chat_names
from toolgate.catalog.search.find_tools import FIND_TOOLS
from toolgate.chat.config import TaskChat, parse_task_chat
from toolgate.chat.requests import GatewayOptions
from toolgate.errors import UnknownModel
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View
from toolgate.model.chat import ChatBudgets, ChatMode, ChatUpstream, NameProfile
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ToolDefinition
from toolgate.policy.layers import parse_session_params
from toolgate.upstream.models.routing import find_upstream

MAX_PATTERNS_SHOWN: Final = 20

ToolTable = Mapping[str, tuple[str, ToolDefinition]]
"""What a model calls a tool, to what the caller's view calls it and how it is defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatScope:
    """How one chat request is served."""

    upstream: ChatUpstream
    model: str
    """As the upstream knows it."""
    caller: Caller
    mode: ChatMode
    budgets: ChatBudgets
    injects: bool
    """Whether the tools of the caller's scope are offered to the model and run here."""

    def deadline_s(self) -> float:
        """When the time for the whole is used up, if it begins now: by the loop's clock."""
        return asyncio.get_running_loop().time() + self.budgets.wall_clock_ms / 1e3


def resolve_chat_scope(
    gateway: Gateway,
    principal: Principal,
    *,
    task_id: str | None,
    model: str,
    params: Mapping[str, Any],
    asked: GatewayOptions,
) -> ChatScope:
    """How a request for `model` is served; `params` are its `mcp.…`.

    Raises what every door refuses a scope with, and UnknownModel.
    """
    if gateway.suspension is not None:
        raise gateway.suspension
    request = parse_session_params(params)
    caller = Caller(principal, task_id, request)
    gateway.task_policy(caller)  # a task that is not there for this caller is none, tools or not
    upstream, name = _find_route(gateway.snapshot.chat_upstreams, model)
    of_task = _task_chat(gateway.snapshot, caller)
    modes = (upstream.mode, of_task.mode, asked.mode)
    mode: ChatMode = "passthrough" if "passthrough" in modes else "inject"
    is_wanted = request.enabled if request.enabled is not None else caller.effective_task_id is not None
    return ChatScope(
        upstream=upstream,
        model=name,
        caller=caller,
        mode=mode,
        budgets=asked.budgets.of(of_task.budgets.of(upstream.budgets)),
        injects=mode == "inject" and is_wanted,
    )


def tool_table(view: View, snapshot: Snapshot, profile: NameProfile) -> ToolTable:
    """The tools a model is offered: those that the MCP door would list for the same caller."""
    if view.found is not None:
        return {name: (name, definition) for name, definition in sorted(FIND_TOOLS.items())}
    routes = {ToolRef(route.server_id, route.name): name for name, route in view.routes.items()}
    names = make_chat_names(routes, _namespaces(snapshot, routes), profile=profile)
    table = {}
    for chat_name, ref in names.items():
        definition = view.routes[routes[ref]].tool
        assert definition is not None  # a view's tools are tools
        table[chat_name] = (routes[ref], definition)
    return table


def guess_tool_name(snapshot: Snapshot, text: str) -> str:
    """What a model's name for a tool that it was not offered would be on the MCP door, for the record."""
    for server_id, offer in snapshot.servers.items():
        namespace = offer.record.tool_namespace or f"mcp.{server_id}"
        for prefix in (f"{namespace.replace('.', '__')}__", f"mcp.{server_id}."):
            if text.startswith(prefix):
                return f"{server_id}.{text.removeprefix(prefix)}"
    return text


def _namespaces(snapshot: Snapshot, refs: Mapping[ToolRef, str]) -> Mapping[str, str]:
    offers = {ref.server_id: snapshot.servers.get(ref.server_id) for ref in refs}
    return {
        server_id: offer.record.tool_namespace
        for server_id, offer in offers.items()
        if offer is not None and offer.record.tool_namespace
    }


def _task_chat(snapshot: Snapshot, caller: Caller) -> TaskChat:
    task = snapshot.tasks.get(caller.effective_task_id or "")
    return TaskChat() if task is None else parse_task_chat(task)


def _find_route(upstreams: Mapping[str, ChatUpstream], model: str) -> tuple[ChatUpstream, str]:
    """Who is asked for `model`, and by which name. Raises UnknownModel."""
    found = find_upstream(upstreams, model)
    if found is None:
        raise UnknownModel(f"no chat upstream serves the model `{model[:200]}`", hint=_models_hint(upstreams))
    return found


def _models_hint(upstreams: Mapping[str, ChatUpstream]) -> str:
    enabled = [one for _, one in sorted(upstreams.items()) if one.enabled]
    patterns = [f"`{pattern}`" for one in enabled for pattern in one.models]
    if not patterns:
        return "there is no chat upstream yet: add one with `toolgate chat-upstreams apply`"
    more = "" if len(patterns) <= MAX_PATTERNS_SHOWN else ", …"
    return f"there are {', '.join(patterns[:MAX_PATTERNS_SHOWN])}{more}; list them with `GET /v1/models`"
