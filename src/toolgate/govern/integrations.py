"""Integrations: callers switch servers, or their writing tools, on and off for themselves.

A choice is stored under its caller, so that every node follows it, and applies to that caller only. It grants
nothing: `policy/resolve` only narrows the key's scope by it. A server beyond the key looks like one that does
not exist.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from toolgate.errors import Conflict, InvalidRecord, NotFound
from toolgate.gateway.scope.caller import can_show_server
from toolgate.govern.changes.commit import MAX_COMMIT_ATTEMPTS, MAX_RECORDS, AuditedStep, store_audited
from toolgate.govern.changes.permissions import check_unbounded
from toolgate.govern.control import Control
from toolgate.model.names import MAX_AUDITED_NAME, ToolRef, kind_of
from toolgate.model.principals import IntegrationState, Principal, make_choice_id
from toolgate.model.revisions import RecordWrite, StoredRecord
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import compose_caller_scopes
from toolgate.policy.resolve import Integrations, read_integrations
from toolgate.registry.records.policy_bodies import MAX_CHOICES

_FOR_ALL: Final = "this lists the choices of all callers"


class Integration(msgspec.Struct, frozen=True, kw_only=True):
    """A server within the caller's ceiling, and its state for the caller."""

    server_id: str
    display_name: str
    state: IntegrationState
    chosen: bool
    """Whether the caller set this state. Otherwise it is the default of its key."""
    tools: int
    """The number of its tools within your key's ceiling, switched on or not."""
    read_only_tools: int
    """The number of these tools that are marked as read-only."""
    writing_tools: int
    """The number of the other tools."""
    needs_login: bool
    """Whether each caller logs in to the server."""


async def list_integrations(control: Control, principal: Principal) -> list[Integration]:
    """Every server within the ceiling of `principal`, sorted by id."""
    platform = control.gateway.snapshot
    chosen = read_integrations(platform, principal)
    # In a thread: thousands of servers would block the event loop.
    return await asyncio.to_thread(_build_integrations, platform, principal, chosen)


async def set_integration(
    control: Control, principal: Principal, server_id: str, state: IntegrationState
) -> tuple[Integration, int]:
    """Set a server's state. Returns the integration and the revision that has it. Raises NotFound."""
    _find(control, principal, server_id, Integrations())
    chosen, revision = await _store(control, principal, server_id, state)
    return _find(control, principal, server_id, chosen), revision


async def reset_integration(control: Control, principal: Principal, server_id: str) -> int:
    """Return to the default of the caller's key. Returns the revision. Raises NotFound."""
    choice = await control.store.get("choice", make_choice_id(principal.id))
    if choice is None or server_id not in _servers(choice):  # can be reset after the server was removed
        _find(control, principal, server_id, Integrations())
    return (await _store(control, principal, server_id, None))[1]


async def list_choices(control: Control, actor: Principal) -> Sequence[StoredRecord]:
    check_unbounded(actor, _FOR_ALL)
    return (await control.store.list("choice")).records


async def forget_choice(control: Control, actor: Principal, choice_id: str) -> int:
    """Delete a caller's choices, which returns it to the default of its key. Raises NotFound."""
    check_unbounded(actor, _FOR_ALL)
    choice = await control.store.get("choice", choice_id)
    if choice is None:
        raise NotFound(
            f"there is no choice `{choice_id}`", hint="`GET /admin/api/integrations` lists all choices"
        )
    owner = str(choice.body.get("principal", choice_id))
    async with control.write_lock:
        write = RecordWrite(kind="choice", id=choice_id, body=None)
        steps = [AuditedStep("reset", "integration", owner[:MAX_AUDITED_NAME])]
        return (await store_audited(control, actor, [write], steps)).revision


def _find(control: Control, principal: Principal, server_id: str, chosen: Integrations) -> Integration:
    """One server. Raises NotFound, also for a server beyond the caller's ceiling."""
    platform = control.gateway.snapshot
    if server_id in platform.servers:
        alone = replace(platform, servers=MappingProxyType({server_id: platform.servers[server_id]}))
        for one in _build_integrations(alone, principal, chosen):
            return one
    raise NotFound(f"no server `{server_id}`", hint="run `toolgate integrations list` for your servers")


def _build_integrations(platform: Snapshot, principal: Principal, chosen: Integrations) -> list[Integration]:
    scopes = compose_caller_scopes(platform, principal)
    refs = frozenset[ToolRef]().union(*(scope.admitted for scope in scopes))
    named = {ref.server_id for ref in refs}
    unlisted = frozenset[str]().union(*(scope.servers for scope in scopes)) - named
    named |= {server_id for server_id in unlisted if can_show_server(platform, principal, server_id)}
    tools: dict[str, list[bool]] = {server_id: [] for server_id in sorted(named)}
    for ref in refs:
        if not kind_of(ref.name):
            tools[ref.server_id].append(platform.servers[ref.server_id].tools[ref.name].is_read_only)
    return [
        Integration(
            server_id=server_id,
            display_name=platform.servers[server_id].record.display_name,
            state=chosen.state_of(server_id),
            chosen=server_id in chosen.chosen,
            tools=len(are_read_only),
            read_only_tools=sum(are_read_only),
            writing_tools=len(are_read_only) - sum(are_read_only),
            needs_login=platform.servers[server_id].record.is_per_principal,
        )
        for server_id, are_read_only in tools.items()
    ]


async def _store(
    control: Control, principal: Principal, server_id: str, state: IntegrationState | None
) -> tuple[Integrations, int]:
    """Store one choice, or delete it with None. Returns all choices of the caller, and the revision."""
    control.integration_rate.count(principal.id)
    choice_id = make_choice_id(principal.id)
    async with control.write_lock:
        for _ in range(MAX_COMMIT_ATTEMPTS):
            stored = await control.store.get("choice", choice_id)
            servers = _add_choice(_servers(stored), server_id, state, control.gateway.snapshot)
            if stored is None and not servers:
                return Integrations(principal.integrations), control.store.revision
            if stored is None and len(control.gateway.snapshot.choices) >= MAX_RECORDS:
                raise InvalidRecord(
                    f"the registry has reached its limit of {MAX_RECORDS} callers with integrations",
                    hint="ask an administrator to delete the choices of callers that no longer exist",
                )
            choices = {"choice_id": choice_id, "principal": principal.id, "servers": servers}
            body = choices if servers else None
            seen = 0 if stored is None else stored.revision
            write = RecordWrite(kind="choice", id=choice_id, body=body, if_revision=seen)
            steps = [AuditedStep(state or "reset", "integration", server_id[:MAX_AUDITED_NAME])]
            try:
                batch = await store_audited(control, principal, [write], steps)
            except (Conflict, NotFound):
                continue  # another control plane stored a choice of the same caller
            return Integrations(principal.integrations, servers), batch.revision
    raise Conflict("your integrations changed at the same time", hint="send the change again")


def _servers(stored: StoredRecord | None) -> Mapping[str, Any]:
    return {} if stored is None else stored.body.get("servers", {})


def _add_choice(
    servers: Mapping[str, Any], server_id: str, state: IntegrationState | None, platform: Snapshot, /
) -> dict[str, Any]:
    """`servers` with one choice added or removed. Raises InvalidRecord beyond the limit."""
    others = {one: chosen for one, chosen in servers.items() if one != server_id}
    if state is None:
        return others
    if len(others) >= MAX_CHOICES:  # drop choices for removed servers first
        others = {one: chosen for one, chosen in others.items() if one in platform.servers}
    if len(others) >= MAX_CHOICES:
        raise InvalidRecord(
            f"you have reached the limit of {MAX_CHOICES} servers with a choice",
            hint="reset one with `toolgate integrations reset SERVER`: the default of your key then applies",
        )
    return {**others, server_id: state}
