"""Tests servers and chat upstreams, lists tools again, and previews the policy decisions on them.

Never connects to a record that could not be saved: a record in the request first passes every check of saving
it, including role and plan.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import Field

from toolgate.catalog.naming import join_tool_name, make_chat_names
from toolgate.errors import InvalidRecord, InvalidRequest, NotFound, PlanOutdated, PlanRequired
from toolgate.govern.changes.commit import audit_change, check_commit
from toolgate.govern.changes.permissions import check_removal, find_record_within
from toolgate.govern.changes.records import PendingChange, find_record
from toolgate.govern.control import Control
from toolgate.model.chat import ChatUpstream
from toolgate.model.names import ToolRef, kind_of, matches_glob, parse_task_id
from toolgate.model.revisions import Kind
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ListState, ServerTools, Snapshot
from toolgate.policy.compose import explain
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.rules import list_tool_names
from toolgate.policy.scope import Decision, Layer, Reason
from toolgate.redaction.shapes import redact_text
from toolgate.registry.records.codec import Record, parse_record
from toolgate.registry.records.fields import UpstreamId
from toolgate.registry.records.policy_bodies import ChatUpstreamBody
from toolgate.surfaces.rest.data_plane.explain import DecisionShown, show_decision
from toolgate.surfaces.rest.framework.request import PLAN_HEADER, NoBody, Parameter, RestCall, accept_as
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import get, post
from toolgate.surfaces.rest.resources.collection import RecordCollection, build_shapes
from toolgate.surfaces.rest.resources.servers import SERVERS, show_health
from toolgate.upstream.pool.health import ServerHealth


class TrialTool(ResponseShape, frozen=True, kw_only=True):
    """A tool that a server listed in a test."""

    name: str
    description: str
    tokens: int
    """Estimated tokens of the definition."""
    effects: list[str]
    """The effects that its annotations state: `read_only`, `destructive`, `idempotent`, `open_world`."""


class TrialResponse(ResponseShape, frozen=True, kw_only=True):
    """The result of a test connection to a server, separate from the connection in use."""

    ok: bool
    connect_ms: int | None
    list_ms: int | None
    era: str | None
    version: str | None
    tools: list[str]
    found: list[TrialTool]
    """The same tools, with what a choice among them depends on."""
    quarantined: dict[str, str]
    """Tool name to the reason why its definition was rejected."""
    error: str
    hint: str
    """What to do about the error."""
    stderr_tail: str


class RefreshResponse(ResponseShape, frozen=True, kw_only=True):
    """A server after the gateway listed its tools again."""

    server_id: str
    health: ServerHealth
    tools: list[str]
    visible: list[str]
    """The tools that callers can see: allowed by the record and, on a pinned server, as approved."""
    quarantined: dict[str, str]
    """Tool name to the reason why its definition was rejected."""


class ToolPreview(ResponseShape, frozen=True, kw_only=True):
    """A tool that a server lists, and the policy decision on it."""

    tool: str
    """The name on the server."""
    name: str
    """The name at the MCP endpoint."""
    chat_name: str
    """The name at the chat endpoint."""
    description: str
    digest: str | None
    """The SHA-256 of its definition, as in a pin. Null: the definition was rejected."""
    tokens: int
    """Estimated tokens of the definition."""
    effects: list[str]
    """The effects that its annotations state, as in patterns: `read_only`, `destructive` and others."""
    allowed: bool
    layer: Layer
    """The layer that decided."""
    reason: Reason | None
    """Null exactly if the tool is allowed."""
    rule: str


class PreviewResponse(ResponseShape, frozen=True, kw_only=True):
    """Everything that a server lists, with the policy decisions."""

    revision: Revision
    server_id: str
    state: ListState
    """The state of the newest list."""
    is_stale: bool
    """Whether the tools are known from an earlier list."""
    tools: list[ToolPreview]
    tokens: int
    """Estimated tokens of the allowed tools."""
    others: list[DecisionShown]
    """Its prompts and resources, named as in rules: `prompt:<name>` and `resource:<uri>`."""


_ONE: Final = SERVERS.one_path
_SERVER: Final = accept_as(SERVERS.shapes.sent, may_be_empty=True)
_TRIAL: Final[dict[str, Any]] = {"headers": (PLAN_HEADER,), "errors": (PlanRequired, PlanOutdated)}


@post(f"{_ONE}/test", "admin", "Test a server", body=_SERVER, **_TRIAL)
async def try_server(control: Control, call: RestCall[Mapping[str, Any]]) -> TrialResponse:
    """Connect to a server once, separately from the connection in use, and list its tools.

    This tests the saved record or, if the request contains a record, that one. It must be valid and is not
    saved.
    """
    server_id = call.ids["server_id"]
    record = await resolve_trial_record(control, call, "server", server_id)
    assert isinstance(record, ServerRecord)
    audit_change(control, call.caller, operation="test", kind="server", record_id=server_id)
    report = await control.gateway.servers.test(record)
    texts = {name: redact_text(getattr(report, name)) for name in ("error", "hint", "stderr_tail")}
    tools = [report.tools[name] for name in sorted(report.tools)]
    found = [TrialTool.of(one, effects=sorted(one.effects.stated)) for one in tools]
    return TrialResponse.of(report, ok=not report.error, tools=sorted(report.tools), found=found, **texts)


async def resolve_trial_record(
    control: Control, call: RestCall[Mapping[str, Any]], kind: Kind, record_id: str
) -> Record | None:
    """The record in the request, if it could be saved, else the saved record."""
    if not call.body:
        body = (await find_record_within(control, call.caller, kind, record_id)).body
        return parse_record(kind, record_id, body, strict=False)
    draft = PendingChange(kind=kind, id=record_id, sent=call.body)
    (edit,), _ = await check_commit(control, call.caller, [draft], plan_id=call.plan_id)
    return edit.record


@post(f"{_ONE}/refresh", "admin", "List the tools of a server again")
async def refresh_server(control: Control, call: RestCall[NoBody]) -> RefreshResponse:
    """List the tools of the server again now. Its health shows the outcome."""
    server_id = call.ids["server_id"]
    check_removal(call.caller, "server", server_id)
    servers = control.gateway.servers
    await servers.refresh(server_id)
    health, offer = servers.health().get(server_id), servers.tools().get(server_id)
    if health is None or offer is None:
        raise NotFound(f"server `{server_id}` was deleted meanwhile")
    decisions, health = _decide_tools(control.gateway.snapshot, offer, None), show_health(health)
    visible = [name for name, one in decisions.items() if one.allowed and name in offer.tools]
    return RefreshResponse.of(
        offer, server_id=server_id, health=health, tools=sorted(offer.tools), visible=visible
    )


_TASK: Final = Parameter("task", "Also apply the policy of the task with this id.")


@get(f"{_ONE}/tools", "viewer", "Preview the tools of a server", query=(_TASK,))
async def preview_tools(control: Control, call: RestCall[None]) -> PreviewResponse:
    """Every tool the server lists, with its names at the endpoints and the policy decision.

    The platform's own rules apply. With `task`, the rules of the task also apply, for a request without a
    selection.
    """
    server_id = call.ids["server_id"]
    await find_record(control, "server", server_id)
    snapshot = control.gateway.snapshot
    task = _find_task_policy(snapshot, call.query.get("task"))
    offer = snapshot.servers.get(server_id)
    decisions = {} if offer is None else _decide_tools(snapshot, offer, task)
    tools = []
    if offer is not None:
        refs = [ToolRef(server_id, name) for name in list_tool_names(offer)]
        names = make_chat_names(refs, {server_id: offer.record.tool_namespace})
        shown = sorted((ref, name) for name, ref in names.items() if ref.name in decisions)
        tools = [_show_tool(offer, ref, name, decisions[ref.name]) for ref, name in shown]
    return PreviewResponse(
        revision=snapshot.revision,
        server_id=server_id,
        state="pending" if offer is None else offer.state,
        is_stale=offer is not None and offer.is_stale,
        tools=tools,
        tokens=sum(tool.tokens for tool in tools if tool.allowed),
        others=[show_decision(one) for name, one in decisions.items() if kind_of(name)],
    )


def _find_task_policy(snapshot: Snapshot, task_id: str | None) -> TaskPolicy | None:
    if task_id is None:
        return None
    try:
        parse_task_id(task_id)
    except InvalidRecord as exc:
        raise InvalidRequest(str(exc)) from exc
    task = snapshot.tasks.get(task_id)
    if task is None:
        raise NotFound(f"no task `{task_id}`", hint="list tasks with `toolgate tasks list`")
    return parse_task_policy(task)


def _decide_tools(snapshot: Snapshot, offer: ServerTools, task: TaskPolicy | None) -> Mapping[str, Decision]:
    """The decisions by name, sorted."""
    server_id = offer.record.server_id
    alone = replace(snapshot, servers=MappingProxyType({server_id: offer}))
    found = explain(ScopeInputs(alone, task=task))
    return {one.tool: one for one in found.tools if one.server_id == server_id and one.tool is not None}


def _show_tool(offer: ServerTools, ref: ToolRef, alias: str, decision: Decision) -> ToolPreview:
    tool = offer.tools.get(ref.name)
    return ToolPreview.of(
        decision,
        tool=ref.name,
        name=join_tool_name(ref),
        chat_name=alias,
        description="" if tool is None else tool.description,
        digest=None if tool is None else tool.digest,
        tokens=0 if tool is None else tool.tokens,
        effects=[] if tool is None else sorted(tool.effects.stated),
    )


MAX_MODELS: Final = 1_000
"""The models of an upstream that a response shows."""


class ChatTrialResponse(ResponseShape, frozen=True, kw_only=True):
    """The result of listing the models of a chat upstream once, separately from the connections in use."""

    ok: bool
    took_ms: Annotated[int, Field(ge=0)]
    found: Annotated[int, Field(ge=0)]
    """The number of models that it lists."""
    admitted: list[str]
    """The models that its patterns admit, so that callers can use them."""
    others: list[str]
    """The models that callers cannot use."""
    error: str
    """The error; empty if the test succeeded."""
    hint: str
    """What to do about the error."""


_SHAPES: Final = build_shapes("chat_upstream", ChatUpstreamBody, UpstreamId)
_UPSTREAM: Final = accept_as(_SHAPES.sent, may_be_empty=True)
CHAT_UPSTREAMS: Final = RecordCollection(
    kind="chat_upstream", path="/admin/api/chat-upstreams", shapes=_SHAPES
)
CHAT_UPSTREAM_ENDPOINTS: Final = CHAT_UPSTREAMS.endpoints()


@post(f"{CHAT_UPSTREAMS.one_path}/test", "admin", "Test a chat upstream", body=_UPSTREAM, **_TRIAL)
async def try_upstream(control: Control, call: RestCall[Mapping[str, Any]]) -> ChatTrialResponse:
    """List the models of a chat upstream once, separately from the connections in use. No model is prompted.

    This tests the saved record or, if the request contains a record, that one. It must be valid and is not
    saved. The process that responds connects, and it may have other networks and secrets than the nodes.
    """
    upstream_id = call.ids["upstream_id"]
    record = await resolve_trial_record(control, call, "chat_upstream", upstream_id)
    assert isinstance(record, ChatUpstream)
    audit_change(control, call.caller, operation="test", kind="chat_upstream", record_id=upstream_id)
    trial = await control.try_models(record)
    names = sorted(set(trial.models))
    admitted = [name for name in names if any(matches_glob(one, name) for one in record.models)]
    return ChatTrialResponse.of(
        trial,
        ok=not trial.error,
        found=len(names),
        admitted=admitted[:MAX_MODELS],
        others=sorted(set(names) - set(admitted))[:MAX_MODELS],
        error=redact_text(trial.error),
    )
