"""The one pipeline: every door lists and calls through here, and there is no other way to a server.

The gateway holds the snapshot. Registry and servers each hand it their half; it swaps the whole, bumps
the serial, and tells those whose list changed, and nobody else.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from toolgate.audit.events import DefinitionChanged, Outcome
from toolgate.audit.log.writer import AuditLog
from toolgate.catalog.search.find_tools import (
    DESCRIBE_TOOL,
    SEARCH_TOOLS,
    parse_search_arguments,
    parse_target,
)
from toolgate.errors import (
    InvalidArguments,
    NotFound,
    ToolgateError,
    TooManyTools,
    UnknownTool,
)
from toolgate.gateway.auth.identity import principal_of, reaches
from toolgate.gateway.call.approval import ApprovalStage
from toolgate.gateway.call.audit_trail import AuditTrail, CallEnd
from toolgate.gateway.call.pipeline import CallPipeline
from toolgate.gateway.call.quota import QuotaLeases
from toolgate.gateway.call.targets import (
    check_arguments,
    check_key,
    find_argument_fault,
    find_current_route,
    find_target,
    recheck_route,
    refusal_error,
)
from toolgate.gateway.cluster.drift import DriftDetector, DriftedTool
from toolgate.gateway.cluster.servers import Servers
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.routes import FIND_ROUTES, Route
from toolgate.gateway.scope.scope_audit import ScopeAudit
from toolgate.gateway.scope.token_counts import TokenCounts, estimate_result
from toolgate.gateway.scope.view import View, ViewCache
from toolgate.gateway.search.index import HybridIndex
from toolgate.gateway.search.tool_search import SEARCH_HINT, ToolSearch, describe_tool, failed_find_result
from toolgate.gateway.subscriptions.listeners import Subscriptions
from toolgate.gateway.subscriptions.resources import ResourceSubscriptions
from toolgate.model.json_text import NO_ARGUMENTS, Members
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.model.quotas import HolderQuotas
from toolgate.model.servers import RedactionRules
from toolgate.model.snapshot import Snapshot
from toolgate.policy.admission import collect_quotas
from toolgate.policy.compose import compose, decide_one
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.resolve import read_integrations
from toolgate.policy.rules import RegistryTotals, count_registered
from toolgate.policy.scope import NO_LIMITS, Decision, Scope, ScopeLimits
from toolgate.redaction.arguments import Redaction, compile_redaction
from toolgate.registry.replication.state import RegistryState, find_changed_principals
from toolgate.telemetry import Metrics
from toolgate.telemetry.spans import Tracer
from toolgate.upstream.connection.contract import ClientChannel, Params, RpcResponse
from toolgate.upstream.connection.messages import is_tool_error
from toolgate.upstream.pool.pool import ServerResponse

PAGE_SIZE: Final = 500

MakeResult = Callable[[], Coroutine[Any, Any, Members]]
"""Makes what a find tool says."""

_log = logging.getLogger(__name__)


class Gateway:
    """Scopes, lists and calls for all doors."""

    def __init__(
        self,
        servers: Servers,
        audit: AuditLog,
        *,
        metrics: Metrics,
        limits: ScopeLimits,
        snapshot: Snapshot,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self.servers = servers
        self.audit = audit
        self.metrics = metrics
        self.limits = limits
        self.snapshot = snapshot
        self.subscriptions = Subscriptions(self._known_view, watch=servers.watch)
        self._page_size = page_size
        self._views = ViewCache()
        self.drift = DriftDetector()
        """What is held back because it changed after it was approved."""
        self.tokens = TokenCounts(audit)
        """What lists and results cost models."""
        self.offers = ScopeAudit(audit)
        """Audits what callers are offered."""
        self._recording = AuditTrail(audit, metrics, decide=self.decide)
        self.resource_subscriptions = ResourceSubscriptions(self.subscriptions.watches, self._recording)
        self.finding = ToolSearch(HybridIndex())
        """Finds tools. One that goes by meaning too may take its place before anybody calls."""
        self.sending = CallPipeline(
            servers,
            self._recording,
            ApprovalStage(audit),
            QuotaLeases(metrics=metrics),
            recheck=self.recheck,
            check_again=self.check_again,
        )
        """The one way to a server, with what stands in front of it."""
        self.tracing: Tracer | None = None
        """What makes spans of requests, at every door. None: nothing is traced."""
        self._counted = (-1, RegistryTotals(0, 0))
        """What all servers have together, and the serial of the snapshot in which they have it."""
        self._state: RegistryState | None = None
        self._is_swap_due = False
        self._applied = asyncio.Event()
        self._swapped = asyncio.Event()
        self._obstacle: Callable[[], ToolgateError] | None = None

    def trace(self, tracing: Tracer) -> None:
        """Make spans of all that is asked for. To be called before a door is built."""
        self.tracing = tracing
        self.sending.trace(tracing)

    # The snapshot

    def apply(self, state: RegistryState) -> None:
        """Take over a new registry state: servers reconcile, scopes rebuild."""
        choosers, self._state = find_changed_principals(self._state, state), state
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
        if choosers is None:
            self._reconcile(state)
        else:  # agents make such changes: what others see is not compiled again for them
            self._views.drop(choosers)
            self._announce()
        applied, self._applied = self._applied, asyncio.Event()
        applied.set()

    def _reconcile(self, state: RegistryState) -> None:
        self.drift.follow(state.pins)
        self.metrics.keep(state.servers, state.tasks, state.chat_upstreams)
        self.metrics.keep_arms(one.profile_id for one in state.profiles.values() if one.rollout is not None)
        self.servers.apply(state.servers)
        self._swap()

    async def reached(self, revision: int) -> None:
        """Returns once this revision of the registry, or a later one, is served."""
        while self.snapshot.revision < revision:
            await self._applied.wait()

    async def wait_for_swap(self, serial: int) -> int:
        """Returns the serial of the snapshot once it is another than `serial`."""
        while self.snapshot.serial == serial:
            await self._swapped.wait()
        return self.snapshot.serial

    def on_tools_changed(self, server_id: str) -> None:
        """A server's tools changed. Many at once make one swap.

        Not so where a pin is broken: that is looked for in every list that arrives, since the next one may
        look well again, and no call may come in between.
        """
        is_pinned = server_id in self.drift.pins and self.servers.is_first_hand
        offer = self.servers.offer(server_id) if is_pinned else None
        if offer is not None and self._note(self.drift.check_server(offer)):
            self._swap()
        elif not self._is_swap_due:
            self._is_swap_due = True
            asyncio.get_running_loop().call_soon(self._swap)

    def on_updated(self, server_id: str, uri: str) -> None:
        """A server says that a resource was updated."""
        self.subscriptions.watches.on_updated(server_id, uri)

    def suspend(self, obstacle: Callable[[], ToolgateError]) -> None:
        """Refuse every list and every call from now on, with what `obstacle` makes."""
        self._obstacle = obstacle
        # Who has a view at hand knows it by its serial, and has to ask for it again.
        self.snapshot = replace(self.snapshot, serial=self.snapshot.serial + 1)

    def resume(self) -> None:
        """Serve again."""
        self._obstacle = None

    @property
    def suspension(self) -> ToolgateError | None:
        """What callers are refused with for now. None: it serves."""
        return None if self._obstacle is None else self._obstacle()

    def _check_suspension(self) -> None:
        if self._obstacle is not None:
            raise self._obstacle()

    def _swap(self) -> None:
        self._is_swap_due = False
        servers = MappingProxyType(dict(self.servers.tools()))
        if self.servers.is_first_hand:
            self._note(self.drift.look(servers, self.servers.unverified))
        if self.drift.pins is not self.snapshot.pins:
            self.servers.hold_back(self.drift.pins)
        self._views.clear()
        self._announce(servers=servers, pins=self.drift.pins)

    def _announce(self, **served: Any) -> None:
        """Serve another snapshot: views that are at hand elsewhere are asked for again."""
        self.snapshot = replace(self.snapshot, serial=self.snapshot.serial + 1, **served)
        self.subscriptions.announce()
        swapped, self._swapped = self._swapped, asyncio.Event()
        swapped.set()

    def _note(self, drifted: Sequence[DriftedTool]) -> bool:
        """Take note of tools that are no longer what was approved; whether there are any."""
        for one in drifted:
            self.audit.record(DefinitionChanged(int(time.time() * 1e3), *one))
        return bool(drifted)

    # Scopes

    def scope(self, caller: Caller) -> Scope:
        """The scope as policy composes it, refusals included."""
        self._check_suspension()
        return self._compose(caller)

    def _compose(self, caller: Caller) -> Scope:
        task, limits = self.task_policy(caller), self.limits_of(caller)
        platform, ceiling = caller.platform(self.snapshot, task), caller.principal.ceiling
        own = read_integrations(platform, caller.principal)
        return compose(platform, ceiling, task=task, request=caller.request, limits=limits, integrations=own)

    def limits_of(self, caller: Caller) -> ScopeLimits:
        """How large the caller's scope may be. A scope that is searched anyway has no limit."""
        return self.limits if caller.mode == "list" else NO_LIMITS

    def view(self, caller: Caller) -> View:
        """The caller's compiled view. Raises what the scope refuses with."""
        self._check_suspension()
        return self._known_view(caller)

    def _known_view(self, caller: Caller) -> View:
        """The view of what is known, served or not: a suspended list has not changed."""
        view = self._views.get(caller)
        return view if view is not None else self._compile(caller)

    def calling_view(self, caller: Caller) -> View:
        """As `view`, for a call: where a scope is refused for its size, its tools can still be called."""
        try:
            return self.view(caller)
        except TooManyTools:
            return self.view(replace(caller, mode="find"))

    async def wait_for_view(self, caller: Caller, *, for_call: bool = False) -> View:
        """As `view` or `calling_view`, once all servers of the scope were listed, or took too long."""
        look = self.calling_view if for_call else self.view
        view = look(caller)
        if view.is_partial:
            await self.servers.settled(view.scope.servers)
            await asyncio.sleep(0)  # lets a swap that the last listing made due happen first
            view = look(caller)
        return view

    def check_scope(self, caller: Caller) -> None:
        """Raises what `view` would. Nothing is kept, counted or logged: who only asks may ask without end."""
        self._check_suspension()
        if self._views.get(caller) is None:
            refusal = self._compose(caller).refusal
            if refusal is not None:
                raise refusal_error(refusal)

    def task_policy(self, caller: Caller) -> TaskPolicy | None:
        """The policy of the caller's task. A task it may not use answers like one that does not exist."""
        task_id = caller.effective_task_id
        tasks = caller.principal.ceiling.tasks
        if task_id is None:
            if tasks is not None:
                raise NotFound(
                    "this key is bound to tasks: name one",
                    hint="use `/api/mcp/t/<task>`, or `/t/<task>/v1` for chats",
                )
            return None
        task = self.snapshot.tasks.get(task_id)
        if task is None or (tasks is not None and task_id not in tasks):
            raise NotFound(f"no task `{task_id}`", hint="list the tasks with `toolgate tasks list`")
        return parse_task_policy(task)

    def allowances(self, caller: Caller) -> tuple[HolderQuotas, ...]:
        """What the caller may use over time. Raises as `task_policy`."""
        return collect_quotas(caller.principal, self.task_policy(caller))

    def _compile(self, caller: Caller) -> View:
        scope = self._compose(caller)
        if scope.refusal is not None:
            raise refusal_error(scope.refusal)
        self._count(caller, scope)
        view = View(
            caller,
            scope,
            self.snapshot,
            page_size=self._page_size,
            decide=partial(self.decide, caller),
            on_growth=self._views.on_growth,
        )
        view.allowances = self.allowances(caller)
        view.tokens = self.tokens.of(caller.effective_task_id or "")
        view.arms = self.metrics.arms(scope.profiles)
        if reaches(caller.principal.role, "viewer"):
            view.registered = self._registered()
        for warning in view.warnings:
            _log.warning("%s: %s", caller.principal.id, warning)
        if shadowed := scope.shadowed:
            unenforced = "%s: task `%s` is not enforced, and would deny %d of what is let through"
            _log.warning(unenforced, caller.principal.id, caller.effective_task_id, len(shadowed))
        self._views.add(view)
        if view.found is not None:
            self.finding.prepare(self.snapshot)  # its first search is to find the index made
        return view

    def listed(self, view: View, door: str) -> None:
        """Take note that the tools of a view were shown at `door`, in a list or to a model."""
        self.offers.offered(view, door)
        self.metrics.injections.update(view.injections)
        view.tokens.listed(view.list_tokens, self._registered().tokens)

    def _registered(self) -> RegistryTotals:
        """What all servers have together, counted once for a snapshot."""
        serial, counted = self._counted
        if serial != self.snapshot.serial:
            counted = count_registered(self.snapshot)
            self._counted = (self.snapshot.serial, counted)
        return counted

    def decide(self, caller: Caller, ref: ToolRef) -> Decision:
        """On one name alone, listed or not; by the newest snapshot, whichever the caller's view is from."""
        task = self.task_policy(caller)
        platform, ceiling = caller.platform(self.snapshot, task), caller.principal.ceiling
        own = read_integrations(platform, caller.principal)
        return decide_one(platform, ceiling, task=task, request=caller.request, ref=ref, integrations=own)

    def _count(self, caller: Caller, scope: Scope) -> None:
        metrics = self.metrics
        # Ids in records are bounded by the registry; those that only a request names are not.
        invented = caller.request.named_servers - self.snapshot.servers.keys()
        for decision in scope.decisions:
            if decision.reason:
                known = "" if decision.server_id in invented else decision.server_id
                metrics.denials[known, decision.reason] += 1
        task_id = caller.effective_task_id or ""
        metrics.effective_servers[task_id] = len(scope.servers)
        metrics.empty_scopes += not scope.tools
        metrics.scope_tools.add(len(scope.tools))
        metrics.scope_tokens.add(scope.tokens)

    # Calls

    # Neither is a coroutine of its own: a plain call is worth one frame less on the way to its server.

    def call(
        self, view: View, name: str, params: Params, *, trace: Trace, client: ClientChannel | None = None
    ) -> Coroutine[Any, Any, ServerResponse]:
        """Call the tool the caller knows as `name`; `params` are those of its `tools/call`."""
        route = view.routes.get(name)
        if route is None:
            if view.found is not None and name in FIND_ROUTES:
                return self._call_find_tool(view, name, params, trace=trace, client=client)
            self._recording.unknown(view, name, trace, code="unknown_tool")
            raise UnknownTool(f"Unknown tool: {name}")
        if fault := find_argument_fault(params, route):
            raise self._malformed(view, route, trace, fault)
        params.pop("task", None)  # nobody is told that tasks are carried: the call is a plain one
        params["name"] = route.upstream_name
        return self.sending.send(view, route, "tools/call", params, trace=trace, client=client)

    def _call_find_tool(
        self, view: View, tool: str, params: Params, *, trace: Trace, client: ClientChannel | None
    ) -> Coroutine[Any, Any, ServerResponse]:
        """Call a find tool. What is wrong with its arguments is its result, so that a model can do better."""
        try:
            if tool == SEARCH_TOOLS:
                search = partial(self.finding.search, view, self.snapshot, parse_search_arguments(params))
                return self._run_find_tool(view, tool, params, trace, search)
            name, meant = parse_target(tool, params)
            route = view.tools.get(name)
            check_arguments(meant, route)
        except InvalidArguments as exc:
            return self._run_find_tool(view, tool, params, trace, partial(failed_find_result, exc))
        if route is None:
            self._recording.unknown(view, name, trace, code="unknown_tool")
            return _make_answer(
                partial(failed_find_result, UnknownTool(f"Unknown tool: {name}", hint=SEARCH_HINT))
            )
        if tool == DESCRIBE_TOOL:
            params["arguments"] = msgspec.Raw(msgspec.json.encode({"name": name}))  # no more was looked at
            return self._run_find_tool(view, tool, params, trace, partial(describe_tool, name, route))
        meant.pop("task", None)
        meant["name"] = route.upstream_name
        return self.sending.send(view, route, "tools/call", meant, trace=trace, client=client)

    def fetch(
        self, view: View, method: str, params: Params, *, trace: Trace, client: ClientChannel | None = None
    ) -> Coroutine[Any, Any, ServerResponse]:
        """Ask for a prompt, a resource or a completion; `params` are those of `method`."""
        route = self._find(view, method, params, trace)
        if method == "prompts/get" and (fault := find_argument_fault(params, route)):
            raise self._malformed(view, route, trace, fault)
        return self.sending.send(view, route, method, params, trace=trace, client=client)

    def server_of(self, view: View, method: str, params: Params, *, trace: Trace) -> str:
        """Where `call` or `fetch` would go with these. Raises as they do."""
        return self._find(view, method, {**params}, trace).server_id

    def _find(self, view: View, method: str, params: Params, trace: Trace) -> Route:
        wanted = find_target(view, method, params)
        if wanted.route is None:
            self._recording.unknown(view, wanted.name, trace, code=wanted.unknown.code)
            raise wanted.unknown
        return wanted.route

    def recheck(self, caller: Caller, route: Route) -> bool:
        """Whether a call that was let through a while ago is still of the tool it was then.

        Raises what it would be refused with by now.
        """
        check_key(self.snapshot.keys, caller.principal)
        return find_current_route(self.view(caller), route).digest == route.digest

    def check_again(self, caller: Caller, route: Route) -> None:
        """Raises what a request is refused with by now that waited for its server."""
        check_key(self.snapshot.keys, caller.principal)
        recheck_route(self.calling_view(caller), route)

    @property
    def _own_redaction(self) -> Redaction:
        """The rules for what the gateway's own tools are called with: those of the installation."""
        return compile_redaction(self.snapshot.redaction, RedactionRules())

    async def _run_find_tool(
        self, view: View, tool: str, params: Params, trace: Trace, telling: MakeResult, /
    ) -> ServerResponse:
        """What one of the find tools says itself, recorded like what a server says."""
        began = time.perf_counter()
        outcome: Outcome = "cancelled"
        code, size, tokens = "cancelled", 0, 0
        try:
            answer = await _make_answer(telling)
            outcome, code = "ok", ""
            if is_tool_error(answer.reply.members or {}):
                outcome = "tool_error"
            size, tokens = answer.reply.size, estimate_result(answer.reply)
        except ToolgateError as exc:
            outcome, code = "error", exc.code
            raise
        finally:
            took_s, arguments = time.perf_counter() - began, params.get("arguments", NO_ARGUMENTS)
            # What was not understood may be arguments of a tool, which its server's rules would hide.
            shown = (
                NO_ARGUMENTS if outcome == "tool_error" else self._own_redaction.redact_for_audit(arguments)
            )
            ending = CallEnd(
                outcome, code, took_s, len(arguments), size, arguments=shown, result_tokens=tokens
            )
            self._recording.ended(view, FIND_ROUTES[tool], trace, ending)
        return answer

    def record_unmade(self, view: View, name: str, *, trace: Trace, code: str) -> None:
        """Take note of a call that was turned away for `code`, where `call` was not asked for it."""
        route = None if code == UnknownTool.code else view.tools.get(name)
        if route is None:
            self._recording.unknown(view, name, trace, code=code)
        else:
            self._recording.record_unmade(view, route, trace, code=code)

    def _malformed(self, view: View, route: Route, trace: Trace, fault: str, /) -> InvalidArguments:
        self._recording.record_unmade(view, route, trace, code=InvalidArguments.code)
        return InvalidArguments(fault)

    def record_refused(
        self, principal: Principal, why: ToolgateError | str, *, trace: Trace, task_id: str | None = None
    ) -> None:
        """Audit and count a request under a task that was refused, with an error or a code, before a call."""
        self._recording.refused(principal, why, trace, task_id=task_id or "", snapshot=self.snapshot)


async def _make_answer(telling: MakeResult) -> ServerResponse:
    return ServerResponse(RpcResponse(members=await telling()), "legacy")
