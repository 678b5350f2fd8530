"""The facade: every surface lists and calls through the gateway. No other path leads to a server.

The gateway holds the snapshot, made from the registry's records and the servers' lists. When either changes,
the gateway replaces the snapshot, increments its serial, and wakes the listeners whose own lists changed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from toolgate.audit.events import DefinitionChanged
from toolgate.audit.log.writer import AuditLog
from toolgate.catalog.encoding import make_error_result
from toolgate.catalog.find_tools import (
    DESCRIBE_TOOL,
    SEARCH_TOOLS,
    SearchArguments,
    parse_search_arguments,
    parse_target,
)
from toolgate.errors import InvalidArguments, ServerUnavailable, ToolgateError, TooManyTools, UnknownTool
from toolgate.gateway.auth.identity import principal_of, reaches
from toolgate.gateway.call import CallContext
from toolgate.gateway.call.approval import ApprovalStage
from toolgate.gateway.call.audit_trail import FAILED, AuditTrail, outcome_of_error, outcome_of_response
from toolgate.gateway.call.elicitation import APPROVAL_TIMEOUT_S
from toolgate.gateway.call.pipeline import CallPipeline
from toolgate.gateway.call.quota import QuotaLeases
from toolgate.gateway.call.targets import find_argument_fault, find_current_route, find_target
from toolgate.gateway.cluster import DriftDetector, DriftedTool, Servers
from toolgate.gateway.scope.caller import (
    Caller,
    Trace,
    can_show_server,
    check_key,
    compose_scope,
    decide,
    find_task_policy,
    refusal_error,
)
from toolgate.gateway.scope.routes import FIND_ROUTES, Route
from toolgate.gateway.scope.scope_audit import ScopeAudit
from toolgate.gateway.scope.token_counts import TokenCounts
from toolgate.gateway.scope.view import View, ViewCache, ViewSettings, count_scope
from toolgate.gateway.search import INDEX_WAIT_S, SEARCH_HINT, HybridIndex, ToolSearch, describe_tool
from toolgate.gateway.subscriptions import MAX_OPEN, Subscriptions
from toolgate.gateway.subscriptions.resources import ResourceSubscriptions, ResourceWatches
from toolgate.model.json_text import Members, encode_raw
from toolgate.model.names import ToolRef
from toolgate.model.principals import HolderQuotas, Principal
from toolgate.model.servers import RedactionRules
from toolgate.model.tools import Pin, ServerTools, Snapshot
from toolgate.policy.admission import collect_quotas
from toolgate.policy.compose import OfferCount, count_offer
from toolgate.policy.layers import TaskPolicy
from toolgate.policy.rules import RegistryTotals, count_registered
from toolgate.policy.scope import Decision, Scope, ScopeLimits
from toolgate.redaction.arguments import compile_redaction
from toolgate.registry.approvals import ApprovalService
from toolgate.registry.replication.state import RegistryState, find_changed_principals
from toolgate.registry.store import QuotaSource
from toolgate.telemetry import Metrics
from toolgate.telemetry.spans import Tracer
from toolgate.upstream.connection.contract import ClientChannel, Params, RpcResponse
from toolgate.upstream.pool.health import describe_slow_start
from toolgate.upstream.pool.pool import ServerResponse

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayServices:
    """The services that a process gives its gateway. Calls that need a missing service fail."""

    approvals: ApprovalService | None = None
    console_url: str = ""
    """Base URL of the console, for approvers. Empty: the approval service provides it."""
    approval_timeout_s: float = APPROVAL_TIMEOUT_S
    quotas: QuotaSource | None = None
    clock_s: Callable[[], float] = time.monotonic
    """The clock of quota windows."""
    tool_index: HybridIndex | None = None
    """The index that `search_tools` uses. None: one that searches by words alone."""
    tracer: Tracer | None = None
    page_size: int = 500
    """Entries in one page of a list: about as many as the largest server lists."""
    max_streams: int = MAX_OPEN
    search_wait_s: float = INDEX_WAIT_S
    on_tools_changed: Callable[[], None] = lambda: None
    """Called when a server's tools changed, so that a node reports them."""


NO_SERVICES: Final = GatewayServices()


class Gateway:
    """Scopes, lists and calls for all surfaces."""

    def __init__(
        self,
        servers: Servers,
        audit: AuditLog,
        *,
        metrics: Metrics,
        limits: ScopeLimits,
        snapshot: Snapshot,
        services: GatewayServices = NO_SERVICES,
    ) -> None:
        self.servers = servers
        self.audit = audit
        self.metrics = metrics
        self.limits = limits
        self.snapshot = snapshot
        self.tracer = services.tracer
        """Opens a span for each request, on every surface. None: tracing is off."""
        self.console_url = services.console_url
        self._page_size = services.page_size
        self._views = ViewCache()
        watches = ResourceWatches(servers.watch)
        self.subscriptions = Subscriptions(self._known_view, watches, services.max_streams)
        self.drift = DriftDetector()
        """Quarantines definitions that changed since approval."""
        self.tokens = TokenCounts(audit)
        """The tokens that lists and results cost models."""
        self.scope_audit = ScopeAudit(audit)
        """Audits which tools callers are offered."""
        self._audit_trail = AuditTrail(audit, metrics, decide=self.decide)
        self.resource_subscriptions = ResourceSubscriptions(watches, self._audit_trail)
        index = services.tool_index or HybridIndex()
        self.tool_search = ToolSearch(index, index_wait_s=services.search_wait_s)
        self.quotas = QuotaLeases(services.quotas, metrics=metrics, clock_s=services.clock_s)
        approvals = ApprovalStage(
            audit, services.approvals, services.console_url, self._is_unchanged, services.approval_timeout_s
        )
        stages = (self.quotas, approvals)
        self._pipeline = CallPipeline(servers, self._audit_trail, stages, self._recheck, services.tracer)
        self._totals = (-1, RegistryTotals(0, 0))
        """The totals of all servers, and the serial of their snapshot."""
        self._offers: Mapping[str, tuple[ServerTools, Pin | None, OfferCount]] = {}
        self._state: RegistryState | None = None
        self._is_swap_due = False
        self._swapped = asyncio.Event()
        self._suspension: Callable[[], ToolgateError] | None = None

    def apply(self, state: RegistryState) -> None:
        """Apply a new registry state: the pool reconciles its servers, and scopes are compiled again."""
        changed, self._state = find_changed_principals(self._state, state), state
        for key_id in self.snapshot.keys.keys() - state.keys.keys():
            self.servers.end_principal(principal_of(self.snapshot.keys[key_id]).id)
        self.snapshot = replace(
            self.snapshot,
            revision=state.revision,
            tasks=state.tasks,
            profiles=state.profiles,
            keys=state.keys,
            chat_upstreams=state.chat_upstreams,
            choices=state.choices,
        )
        if changed is None:
            self.drift.apply_pins(state.pins)
            rollouts = {one.profile_id for one in state.profiles.values() if one.rollout is not None}
            self.metrics.keep(state.servers, state.tasks, state.chat_upstreams, rollouts=rollouts)
            self.servers.apply(state.servers)
            self._swap()
        else:  # agents switch integrations often: drop their own views, keep all others
            self._views.drop(changed)
            self._announce()

    async def wait_for_revision(self, revision: int) -> None:
        """Returns once the gateway serves this revision of the registry, or a later one."""
        while self.snapshot.revision < revision:
            await self._swapped.wait()

    async def wait_for_swap(self, serial: int) -> int:
        """Returns the serial of the snapshot once it differs from `serial`."""
        while self.snapshot.serial == serial:
            await self._swapped.wait()
        return self.snapshot.serial

    def on_tools_changed(self, server_id: str) -> None:
        """A server's tools changed. Changes that arrive together cause one swap.

        A changed pinned tool causes a swap at once: the next list may match the pin again, and no call may
        run in between.
        """
        is_pinned = server_id in self.drift.pins and self.servers.is_first_hand
        offer = self.servers.offer(server_id) if is_pinned else None
        if offer is not None and self._audit_drift(self.drift.check_server(offer)):
            self._swap()
        elif not self._is_swap_due:
            self._is_swap_due = True
            asyncio.get_running_loop().call_soon(self._swap)

    def suspend(self, make_error: Callable[[], ToolgateError]) -> None:
        """Reject every list and every call from now on, with the error that `make_error` returns."""
        self._suspension = make_error
        # Surfaces compare the serial of the view they hold, and look it up again.
        self.snapshot = replace(self.snapshot, serial=self.snapshot.serial + 1)

    def resume(self) -> None:
        self._suspension = None

    @property
    def suspension(self) -> ToolgateError | None:
        """The error that callers get while the gateway is suspended; None: it is not suspended."""
        return None if self._suspension is None else self._suspension()

    def _check_suspension(self) -> None:
        if self._suspension is not None:
            raise self._suspension()

    def _swap(self) -> None:
        self._is_swap_due = False
        servers = MappingProxyType(dict(self.servers.tools()))
        if self.servers.is_first_hand:
            self._audit_drift(self.drift.check_servers(servers, self.servers.unverified))
        if self.drift.pins is not self.snapshot.pins:
            self.servers.set_pins(self.drift.pins)
        self._views.clear()
        self._announce(servers=servers, pins=self.drift.pins)

    def _announce(self, **served: Any) -> None:
        """Serve another snapshot: because of its serial, surfaces look up their views again."""
        self.snapshot = replace(self.snapshot, serial=self.snapshot.serial + 1, **served)
        self.subscriptions.announce()
        swapped, self._swapped = self._swapped, asyncio.Event()
        swapped.set()

    def _audit_drift(self, drifted: Sequence[DriftedTool]) -> bool:
        for one in drifted:
            self.audit.record(DefinitionChanged(int(time.time() * 1e3), *one))
        return bool(drifted)

    def scope(self, caller: Caller) -> Scope:
        self._check_suspension()
        return compose_scope(self.snapshot, caller, self.limits)

    def view(self, caller: Caller) -> View:
        """The caller's compiled view. Raises the scope's refusal."""
        self._check_suspension()
        return self._known_view(caller)

    def _known_view(self, caller: Caller) -> View:
        """The view, even while suspended: a suspended list has not changed."""
        view = self._views.views.get(caller)
        return view if view is not None else self._compile(caller)

    def view_for_call(self, caller: Caller) -> View:
        """As `view`, for a call: tools stay callable if the scope is too large to list."""
        try:
            return self.view(caller)
        except TooManyTools:
            return self.view(replace(caller, mode="find"))

    async def wait_for_view(self, caller: Caller, *, for_call: bool = False) -> View:
        """As `view` or `view_for_call`, after all servers of the scope were listed, or took too long."""
        find_view = self.view_for_call if for_call else self.view
        view = find_view(caller)
        if view.is_partial:
            await self.servers.settled(view.scope.servers)
            await asyncio.sleep(0)  # the last list may have scheduled a swap: let it run first
            view = find_view(caller)
        return view

    def check_scope(self, caller: Caller) -> None:
        """Raises as `view`. Keeps, counts and logs nothing, so it is safe to call at any rate."""
        self._check_suspension()
        if caller not in self._views.views:
            refusal = compose_scope(self.snapshot, caller, self.limits).refusal
            if refusal is not None:
                raise refusal_error(refusal)

    def check_started(self, view: View, name: str, *, trace: Trace) -> None:
        """Raises ServerUnavailable if `name` can only be a tool of a server that is still starting.

        If the caller may not know of the server, the tool is unknown instead.
        """
        server_id = view.caller.only_server or name.partition(".")[0]
        if name in view.routes or server_id not in view.scope.servers:
            return
        health = self.servers.health().get(server_id)
        if health is None or health.state != "starting":
            return
        if not can_show_server(self.snapshot, view.caller.principal, server_id):
            return
        self.record_unmade(view, name, trace=trace, code=ServerUnavailable.code)
        since_s = max(0.0, time.time() - health.since_ms / 1000)
        raise describe_slow_start(server_id, since_s, health.hint)

    def task_policy(self, caller: Caller) -> TaskPolicy | None:
        """The policy of the caller's task. Raises NotFound, also for a task that the caller may not use."""
        return find_task_policy(self.snapshot, caller)

    def quotas_of(self, caller: Caller) -> tuple[HolderQuotas, ...]:
        """The quotas of the caller's key and task. Raises as `task_policy`."""
        return collect_quotas(caller.principal, self.task_policy(caller))

    def decide(self, caller: Caller, ref: ToolRef) -> Decision:
        """Whether the newest snapshot allows the caller one name, listed or not."""
        return decide(self.snapshot, caller, ref)

    def _compile(self, caller: Caller) -> View:
        scope = compose_scope(self.snapshot, caller, self.limits)
        if scope.refusal is not None:
            raise refusal_error(scope.refusal)
        count_scope(self.metrics, caller, scope, self.snapshot)
        settings = ViewSettings(
            page_size=self._page_size,
            decide=partial(self.decide, caller),
            on_growth=self._views.on_growth,
            quotas=self.quotas_of(caller),
            tokens=self.tokens.tasks[caller.effective_task_id or ""],
            arms=self.metrics.arms(scope.profiles),
            registered=self._registered() if reaches(caller.principal.role, "viewer") else None,
        )
        view = View(caller, scope, self.snapshot, settings)
        for warning in view.warnings:
            _log.warning("%s: %s", caller.principal.id, warning)
        if shadowed := scope.shadowed:
            unenforced = "%s: task `%s` is in shadow mode; it would deny %d tools, prompts or resources"
            _log.warning(unenforced, caller.principal.id, caller.effective_task_id, len(shadowed))
        self._views.add(view)
        if view.found is not None:
            self.tool_search.prepare(self.snapshot)  # the caller's first search should find a complete index
        return view

    def record_listing(self, view: View, surface: str) -> None:
        """Count and audit that `surface` showed the tools of a view, in a list or to a model."""
        self.scope_audit.record_offer(view, surface)
        self.metrics.injections.update(view.injections)
        view.tokens.record_list(view.list_tokens, self._registered().tokens)

    def _registered(self) -> RegistryTotals:
        serial, totals = self._totals
        if serial != self.snapshot.serial:
            totals = count_registered(self.snapshot)
            self._totals = (self.snapshot.serial, totals)
        return totals

    def count_offers(self) -> Mapping[str, OfferCount]:
        """How many tools each server offers. Counts again only servers whose record, lists or pin changed."""
        snapshot, known, found = self.snapshot, self._offers, {}
        for server_id, offer in snapshot.servers.items():
            pin, one = snapshot.pins.get(server_id), known.get(server_id)
            is_known = one is not None and one[0] is offer and one[1] is pin
            found[server_id] = one if one and is_known else (offer, pin, count_offer(snapshot, offer))
        self._offers = found
        return {server_id: one[2] for server_id, one in found.items()}

    # `call` and `fetch` are not coroutines themselves: that saves each call one frame (2 µs).

    def call(
        self, view: View, name: str, params: Params, *, trace: Trace, client: ClientChannel | None = None
    ) -> Coroutine[Any, Any, ServerResponse]:
        """Call the tool that the caller knows as `name`, with the `params` of its `tools/call`."""
        route = view.routes.get(name)
        if route is None:
            if view.found is not None and name in FIND_ROUTES:
                return self._call_find_tool(CallContext(view, FIND_ROUTES[name], name, params, trace, client))
            self._audit_trail.record_unknown(view, name, trace, code=UnknownTool.code)
            raise UnknownTool(f"Unknown tool: {name}")
        if fault := find_argument_fault(params, route):
            raise self._malformed(view, route, trace, fault)
        params.pop("task", None)  # the gateway does not support MCP tasks: it makes a plain call
        params["name"] = route.upstream_name
        return self._pipeline.run(CallContext(view, route, "tools/call", params, trace, client))

    def _call_find_tool(self, call: CallContext) -> Coroutine[Any, Any, ServerResponse]:
        """Call a find tool. Invalid arguments become an error result, so that a model can correct them."""
        view, tool, params = call.view, call.method, call.params
        try:
            if tool == SEARCH_TOOLS:
                return self._run_find_tool(call, parse_search_arguments(params))
            name, target_params = parse_target(tool, params)
            route = view.tools.get(name)
        except InvalidArguments as exc:
            return self._run_find_tool(call, make_error_result(exc))
        if fault := find_argument_fault(target_params, route):
            return self._run_find_tool(call, make_error_result(InvalidArguments(fault)))
        if route is None:
            self._audit_trail.record_unknown(view, name, call.trace, code=UnknownTool.code)
            unknown = UnknownTool(f"Unknown tool: {name}", hint=SEARCH_HINT)
            return _respond(make_error_result(unknown))
        if tool == DESCRIBE_TOOL:
            # The audit gets only the argument that was read.
            params["arguments"] = encode_raw({"name": name})
            return self._run_find_tool(call, describe_tool(name, route))
        target_params.pop("task", None)
        target_params["name"] = route.upstream_name
        target = CallContext(view, route, "tools/call", target_params, call.trace, call.client)
        return self._pipeline.run(target)

    def fetch(
        self, view: View, method: str, params: Params, *, trace: Trace, client: ClientChannel | None = None
    ) -> Coroutine[Any, Any, ServerResponse]:
        """Request a prompt, a resource or a completion, with the `params` of `method`."""
        route = self._find_route(view, method, params, trace)
        if method == "prompts/get" and (fault := find_argument_fault(params, route)):
            raise self._malformed(view, route, trace, fault)
        return self._pipeline.run(CallContext(view, route, method, params, trace, client))

    def server_of(self, view: View, method: str, params: Params, *, trace: Trace) -> str:
        """The server that `call` or `fetch` would send this to. Raises as they do."""
        return self._find_route(view, method, {**params}, trace).server_id

    def _find_route(self, view: View, method: str, params: Params, trace: Trace) -> Route:
        target = find_target(view, method, params)
        if target.route is None:
            self._audit_trail.record_unknown(view, target.name, trace, code=target.unknown.code)
            raise target.unknown
        return target.route

    def _is_unchanged(self, caller: Caller, route: Route) -> bool:
        """Whether a route still has the same definition. Raises if policy now denies the caller."""
        check_key(self.snapshot.keys, caller.principal)
        return find_current_route(self.view(caller), route).digest == route.digest

    def _recheck(self, caller: Caller, route: Route) -> None:
        """Raises if policy now denies a request that waited for its server."""
        check_key(self.snapshot.keys, caller.principal)
        current = find_current_route(self.view_for_call(caller), route)
        must_be_approved = current.approval is not None and route.approval is None
        if must_be_approved or current.digest != route.digest:
            message = "the tool or its policy changed while the call waited, so the call was not sent"
            raise ServerUnavailable(message, hint="send the call again")

    async def _run_find_tool(self, call: CallContext, result: SearchArguments | Members) -> ServerResponse:
        """Search, or return the result of another find tool; audited like a server's."""
        began_s, outcome = time.perf_counter(), FAILED
        redaction = compile_redaction(self.snapshot.redaction, RedactionRules())
        try:
            if isinstance(result, SearchArguments):
                result = await self.tool_search.search(call.view, self.snapshot, result)
            response = await _respond(result)
            outcome = outcome_of_response(response, call.route.tool)
        except (ToolgateError, asyncio.CancelledError) as exc:
            outcome = outcome_of_error(exc, call.trace)
            raise
        finally:
            self._audit_trail.record_unsent(
                msgspec.structs.replace(call, route=msgspec.structs.replace(call.route, redaction=redaction)),
                time.perf_counter() - began_s,
                outcome,
                # Malformed arguments may belong to a tool whose server record masks them.
                shows_arguments=outcome.outcome != "tool_error",
            )
        return response

    def record_unmade(self, view: View, name: str, *, trace: Trace, code: str) -> None:
        """Audit a call that a surface rejected with `code` before it reached `call`."""
        route = None if code == UnknownTool.code else view.tools.get(name)
        if route is None:
            self._audit_trail.record_unknown(view, name, trace, code=code)
        else:
            self._audit_trail.record_unmade(view, route, trace, code=code)

    def _malformed(self, view: View, route: Route, trace: Trace, fault: str) -> InvalidArguments:
        self._audit_trail.record_unmade(view, route, trace, code=InvalidArguments.code)
        return InvalidArguments(fault)

    def record_refused(
        self, principal: Principal, reason: ToolgateError | str, *, trace: Trace, task_id: str | None = None
    ) -> None:
        """Audit and count a request that was rejected, with an error or a code, before it became a call."""
        trail, snapshot = self._audit_trail, self.snapshot
        trail.record_refused(principal, reason, trace, task_id=task_id or "", snapshot=snapshot)


async def _respond(result: Members) -> ServerResponse:
    return ServerResponse(RpcResponse(members=result), "legacy")
