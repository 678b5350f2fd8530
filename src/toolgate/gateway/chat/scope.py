"""The scope of one chat request: its model, its tools and its budgets.

Policy and view are the same as on every endpoint. Chat adds the upstream, whether to offer tools at all, and
the names by which a model knows them. Never prompts a model.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from toolgate.catalog.find_tools import FIND_TOOLS
from toolgate.catalog.naming import make_chat_names
from toolgate.chat.config import ChatOptions, parse_task_chat
from toolgate.errors import WIRE, ToolgateError, UnknownModel
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View
from toolgate.model.chat import ChatBudgets, ChatMode, ChatUpstream, NameProfile
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.model.tools import Snapshot, ToolDefinition
from toolgate.policy.layers import parse_session_params
from toolgate.telemetry.spans import MAX_SPAN_NAME_CHARS
from toolgate.upstream.models.client import find_upstream

MAX_PATTERNS_SHOWN: Final = 20  # of model patterns in the hint of an error: a screen of them

ToolTable = Mapping[str, tuple[str, ToolDefinition]]
"""Name for the model → name in the caller's view, and the definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatScope:
    """The model, caller and budgets of one chat request."""

    upstream: ChatUpstream
    model: str
    """Its name at the upstream."""
    caller: Caller
    mode: ChatMode
    budgets: ChatBudgets
    injects: bool
    """Whether the gateway offers the caller's tools to the model and runs them."""


def resolve_chat_scope(
    gateway: Gateway,
    principal: Principal,
    *,
    task_id: str | None,
    model: str,
    params: Mapping[str, Any],
    options: ChatOptions,
) -> ChatScope:
    """Resolve the scope of a request for `model`. Raises UnknownModel, and as every endpoint for a scope."""
    if gateway.suspension is not None:
        raise gateway.suspension
    request = parse_session_params(params)
    caller = Caller(principal, task_id, request)
    gateway.task_policy(caller)  # raises for a task that this caller may not use, with tools or without
    upstreams = gateway.snapshot.chat_upstreams
    found = find_upstream(upstreams, model)
    if found is None:
        raise UnknownModel(f"no chat upstream serves the model `{model[:200]}`", hint=_models_hint(upstreams))
    upstream, name = found
    task = gateway.snapshot.tasks.get(caller.effective_task_id or "")
    task_chat = ChatOptions() if task is None else parse_task_chat(task)
    modes = (upstream.mode, task_chat.mode, options.mode)
    mode: ChatMode = "passthrough" if "passthrough" in modes else "inject"
    is_enabled = request.enabled if request.enabled is not None else caller.effective_task_id is not None
    budgets = upstream.budgets.narrow(task_chat.budgets).narrow(options.budgets)
    injects = mode == "inject" and is_enabled
    return ChatScope(
        upstream=upstream, model=name, caller=caller, mode=mode, budgets=budgets, injects=injects
    )


@contextmanager
def count_chat(gateway: Gateway, scope: ChatScope) -> Iterator[list[str]]:
    """Count one chat by its outcome: the last entry of the list, or the code of the error raised."""
    outcomes: list[str] = []
    outcome = "cancelled"
    try:
        yield outcomes
        outcome = outcomes[-1]
    except ToolgateError as exc:
        outcome = exc.code
        raise
    finally:
        gateway.metrics.chats[scope.upstream.upstream_id, outcome] += 1
        if gateway.tracer is not None:
            span = gateway.tracer.current
            span.note("gen_ai.request.model", scope.model[:MAX_SPAN_NAME_CHARS])
            span.note("toolgate.outcome", outcome)
            if outcome in WIRE:  # a stream that has begun breaks off without an exception
                span.fail(outcome)


def build_tool_table(view: View, snapshot: Snapshot, profile: NameProfile) -> ToolTable:
    """Build the table of tools to offer: those that the MCP endpoint lists for the same caller."""
    if view.found is not None:
        return {name: (name, definition) for name, definition in sorted(FIND_TOOLS.items())}
    routes = {ToolRef(route.server_id, route.name): name for name, route in view.routes.items()}
    offers = {ref.server_id: snapshot.servers.get(ref.server_id) for ref in routes}
    namespaces = {
        server_id: offer.record.tool_namespace
        for server_id, offer in offers.items()
        if offer is not None and offer.record.tool_namespace
    }
    names = make_chat_names(routes, namespaces, profile=profile)
    table = {}
    for chat_name, ref in names.items():
        definition = view.routes[routes[ref]].tool
        assert definition is not None  # a view's tools are tools
        table[chat_name] = (routes[ref], definition)
    return table


def guess_tool_name(snapshot: Snapshot, text: str) -> str:
    """Guess the MCP name of a tool that the model called without an offer, for the audit log."""
    for server_id, offer in snapshot.servers.items():
        namespace = offer.record.tool_namespace or f"mcp.{server_id}"
        for prefix in (f"{namespace.replace('.', '__')}__", f"mcp.{server_id}."):
            if text.startswith(prefix):
                return f"{server_id}.{text.removeprefix(prefix)}"
    return text


def _models_hint(upstreams: Mapping[str, ChatUpstream]) -> str:
    enabled = [one for _, one in sorted(upstreams.items()) if one.enabled]
    patterns = [f"`{pattern}`" for one in enabled for pattern in one.models]
    if not patterns:
        return "there is no chat upstream: add one with `toolgate chat-upstreams apply -f FILE`"
    more = "" if len(patterns) <= MAX_PATTERNS_SHOWN else ", …"
    return f"use one of {', '.join(patterns[:MAX_PATTERNS_SHOWN])}{more}; `GET /v1/models` lists them"
