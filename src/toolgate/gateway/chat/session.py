"""One chat whose tools the gateway runs, and the tool calls of each round.

The pure loop (`chat.tool_loop`) decides; this module carries out its actions. It knows neither HTTP nor
messages: a subclass of `ChatSession` keeps the history and prompts the model in the format of its API. The
model gets a result of every tool call, failed ones included. Only cancellation ends running tools early, and
then no call survives it.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, Self

import msgspec

from toolgate import errors
from toolgate.catalog.encoding import InputRequired, adapt_result
from toolgate.chat import tool_calls
from toolgate.chat.model_completion import count_reported_tokens, is_usage_only, request_usage
from toolgate.chat.tool_loop import Action, Finish, PromptModel, RefuseTool, RunTool, RunTools, ToolLoop
from toolgate.gateway.call.audit_trail import SessionTotals
from toolgate.gateway.call.quota import QuotaLeases
from toolgate.gateway.chat.scope import ChatScope, guess_tool_name
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.token_counts import PER_BYTES, TOKENS
from toolgate.model.json_text import decode_members
from toolgate.model.principals import HolderQuotas
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.models.client import ModelRequest, ModelResponse, Models
from toolgate.upstream.models.endpoint import ModelEvent, ModelEventStream
from toolgate.upstream.pool.pool import ServerResponse

MAX_CONCURRENT_CALLS: Final = 8
"""Concurrent tool calls of one chat; further ones wait. Servers have their own limits."""
CALLER_TOOL_PREFIX: Final = "own/"
"""Marks a function of the caller that runs here: no name in a view has this prefix."""
_INVALID_PARAMS: Final = -32602  # JSON-RPC 2.0, section 5.1
_MAX_QUOTED: Final = 1_000  # characters of a server's error message: longer ones are mostly stack traces


class ToolEvent(NamedTuple):
    """The start or end of one tool call, for clients that show progress."""

    event: Literal["tool_started", "tool_finished", "tool_refused"]
    call_id: str
    tool: str
    ok: bool | None = None
    """Of a finished call: whether it succeeded. False for an error result of the tool, too."""
    ms: int | None = None
    code: str = ""
    """Of a failed call: the error code."""
    arguments: str = ""
    """As the model wrote them."""
    content: str = ""
    """Of a finished call: the text that the model gets."""


class CallerToolFailed(Exception):
    """A function of the caller gave no result. The message goes to the model."""


CallerTool = Callable[[bytes], Awaitable[str]]
"""A function of the caller that runs here. Gets a JSON object; raises CallerToolFailed and ToolgateErrors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatContext:
    """One chat request: its caller, its model and tools, and its deadline."""

    gateway: Gateway
    models: "Models | MeteredModels"
    """Charged to the caller's token quotas."""
    scope: ChatScope
    trace: Trace
    deadline_s: float
    """The end of the whole chat, by the loop's clock. Calls that run then are cancelled."""
    caller_tools: Mapping[str, CallerTool] = field(default_factory=dict)
    """Functions of the caller that run here, by name. Only `deadline_s` limits them."""

    @classmethod
    def begin(
        cls,
        gateway: Gateway,
        models: Models,
        scope: ChatScope,
        trace: Trace,
        caller_tools: Mapping[str, CallerTool] | None = None,
    ) -> Self:
        """Start the chat's clock."""
        quotas = gateway.quotas_of(scope.caller)
        allowances = [one for one in quotas if one.budgets.tokens_per_day is not None]
        return cls(
            gateway=gateway,
            models=MeteredModels(models, gateway.quotas, allowances) if allowances else models,
            scope=scope,
            trace=trace,
            deadline_s=asyncio.get_running_loop().time() + scope.budgets.wall_clock_ms / 1e3,
            caller_tools=caller_tools or {},
        )

    def build_request(self, path: str, body: bytes, *, may_retry: bool) -> ModelRequest:
        """A request to the chat's model."""
        return ModelRequest(self.scope.upstream, path, body, deadline_s=self.deadline_s, may_retry=may_retry)

    def measure_model(self, began_s: float) -> None:
        """Record the latency of a whole response that was requested at `began_s`."""
        latency = self.gateway.metrics.model_latency_ms[self.scope.upstream.upstream_id]
        latency.add((time.perf_counter() - began_s) * 1e3)


class ModelTurn(NamedTuple):
    """The parts of a model's response that the loop needs."""

    calls: tuple[tool_calls.ToolCall, ...]
    has_text: bool


class ChatOutcome(NamedTuple):
    """How a chat ended."""

    finish: Finish
    handed: tuple[tool_calls.ToolCall, ...] = ()
    """Calls of the client's own functions, which it runs itself."""


class ChatSession(ABC):
    """One chat while it runs: its loop, its history, and what it has used."""

    def __init__(self, context: ChatContext, loop: ToolLoop) -> None:
        self.context = context
        self.loop = loop
        self._totals = SessionTotals()

    @abstractmethod
    async def prompt(self, action: PromptModel) -> ModelTurn:
        """Prompt the model, and add its response to the history."""

    @abstractmethod
    def add_result(self, call: tool_calls.ToolCall, content: str) -> None:
        """Add the result of one call of the last response to the history. Each call gets exactly one."""

    async def on_tool_event(self, event: ToolEvent) -> None:  # noqa: B027, most sessions ignore events
        """A tool call starts or ends. A ToolgateError raised at the start prevents the call."""

    @property
    def may_retry(self) -> bool:
        """Whether a failed model request may be sent again: no tool has run so far."""
        return self.loop.calls_made == 0

    async def run(self) -> ChatOutcome:
        """Prompt and run tools until the model makes no calls, calls a client's function, or a budget ends.

        Raises as `prompt`. At the deadline, it stops waiting for the model and cancels running calls; each
        of them still gets a result. It always records the totals.
        """
        context, totals, ended_by = self.context, self._totals, errors.CallCancelled.code
        gateway = context.gateway
        try:
            outcome = await self._run_loop()
            ended_by = outcome.finish.reason
        except errors.ToolgateError as exc:
            ended_by = exc.code
            raise
        finally:
            totals.calls, totals.rounds = self.loop.calls_made, self.loop.rounds
            totals.count_limit_hit(gateway.metrics, context.trace.door, ended_by)
            caller, trace = context.scope.caller, context.trace
            totals.record_end(gateway.audit, gateway.metrics, caller, trace, ended_by=ended_by)
        gateway.metrics.chat_rounds.add(self.loop.rounds)
        return outcome

    async def run_tools(self, steps: Sequence[RunTool | RefuseTool]) -> list[tuple[tool_calls.ToolCall, str]]:
        """Run the steps concurrently. Returns each call and the text for the model, in their order."""
        slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._take_step(step, slots)) for step in steps]
        return [(step.call, one.result()) for step, one in zip(steps, running, strict=True)]

    async def _run_loop(self) -> ChatOutcome:
        loop = self.loop
        action: Action = loop.start()
        handed: tuple[tool_calls.ToolCall, ...] = ()
        while not isinstance(action, Finish):
            if isinstance(action, RunTools):
                handed = action.handed
                for call, content in await self.run_tools(action.steps):
                    self.add_result(call, content)
                action = loop.on_results()
            else:
                turn = await self._prompt_in_time(action)
                if turn is None:
                    action = loop.on_timeout()
                else:
                    action = loop.on_completion(turn.calls, has_text=turn.has_text)
        return ChatOutcome(action, handed if action.reason == "client_calls" else ())

    async def _prompt_in_time(self, action: PromptModel) -> ModelTurn | None:
        """Prompt the model before the deadline. None: the chat's time is used up."""
        context, clock = self.context, asyncio.get_running_loop().time
        # An operator may remove or disable the upstream while the chat runs: that applies to the next round.
        upstream_id = context.scope.upstream.upstream_id
        upstream = context.gateway.snapshot.chat_upstreams.get(upstream_id)
        if upstream is None or not upstream.enabled:
            raise errors.ModelUnavailable(
                f"chat upstream `{upstream_id}` was removed or disabled during the chat"
            )
        if clock() >= context.deadline_s:
            return None  # do not send it: models charge for each request
        try:
            async with asyncio.timeout_at(context.deadline_s):
                return await self.prompt(action)
        except (TimeoutError, errors.ModelTimedOut):
            if clock() < context.deadline_s:
                raise
            return None

    async def _take_step(self, step: RunTool | RefuseTool, slots: asyncio.Semaphore) -> str:
        context, clock, call = self.context, asyncio.get_running_loop().time, step.call
        if isinstance(step, RefuseTool):
            name = guess_tool_name(context.gateway.snapshot, call.name)
            with suppress(errors.ToolgateError):  # a caller without a scope has no tool, either
                view = context.gateway.view_for_call(context.scope.caller)
                context.gateway.record_unmade(view, name, trace=context.trace, code=step.error.code)
            content = tool_calls.render_error(step.error)
            refused = ToolEvent("tool_refused", call.call_id, name, ok=False, ms=0, code=step.error.code)
            await self.on_tool_event(refused._replace(arguments=call.arguments, content=content))
            return content
        try:
            async with asyncio.timeout_at(context.deadline_s), slots:
                began_s = clock()
                content, code = await self._call_tool(step)
                self._totals.count_limit_hit(context.gateway.metrics, context.trace.door, code)
                took_ms = round((clock() - began_s) * 1e3)
                ended = ToolEvent("tool_finished", call.call_id, step.name, not code, took_ms, code)
                await self.on_tool_event(ended._replace(arguments=call.arguments, content=content))
                return content
        except TimeoutError:
            return _render_failure(errors.CallTimedOut("the time for the whole chat is used up", hint=""))[0]

    async def _call_tool(self, step: RunTool) -> tuple[str, str]:
        caller_tool = self.context.caller_tools.get(step.name.removeprefix(CALLER_TOOL_PREFIX))
        max_bytes = self.context.scope.budgets.max_tool_output_bytes
        try:
            call = step.call
            await self.on_tool_event(
                ToolEvent("tool_started", call.call_id, step.name, arguments=call.arguments)
            )
            if caller_tool is not None and step.name.startswith(CALLER_TOOL_PREFIX):
                return tool_calls.cut_text(await caller_tool(step.arguments), max_bytes), ""
            return _render_response(await self._call_server(step), max_bytes)
        except CallerToolFailed as exc:
            error = tool_calls.CallError(code="tool_exec_failed", message=str(exc), retryable=False)
            return tool_calls.render_error(error), error.code
        except InputRequired:
            failure = errors.InputNotGiven(
                "the tool requests input from its user, and a chat cannot elicit any"
            )
            return _render_failure(failure)
        except errors.ToolgateError as exc:
            return _render_failure(exc)

    async def _call_server(self, step: RunTool) -> ServerResponse:
        context, timeout_ms = self.context, self.context.scope.budgets.tool_timeout_ms
        until_s = asyncio.get_running_loop().time() + timeout_ms / 1e3
        trace = msgspec.structs.replace(context.trace, deadline_s=min(until_s, context.deadline_s))
        try:
            async with asyncio.timeout_at(until_s):
                # Resolved for each call: the caller's permissions can change during the chat.
                view = context.gateway.view_for_call(context.scope.caller)
                params = {"arguments": msgspec.Raw(step.arguments)}
                return await context.gateway.call(view, step.name, params, trace=trace)
        except TimeoutError as exc:
            raise errors.CallTimedOut(f"the tool returned no result within {timeout_ms} ms") from exc


def parse_server_error(raw: bytes | None) -> tool_calls.CallError:
    """Convert the JSON-RPC error of a server into an error for the model."""
    error = parse_error(raw)
    is_about_arguments = error.code == _INVALID_PARAMS
    code = errors.InvalidArguments.code if is_about_arguments else tool_calls.TOOL_ERROR
    message = error.message[:_MAX_QUOTED] or "the server returned an error without a message"
    return tool_calls.CallError(code=code, message=message, retryable=is_about_arguments)


def _render_response(response: ServerResponse, max_bytes: int) -> tuple[str, str]:
    """Raises InputRequired and ServerUnavailable."""
    members = response.rpc.members
    if members is None:
        error = parse_server_error(response.rpc.error)
        return tool_calls.render_error(error), error.code
    if response.revision != "legacy":  # remove members that only the stateless revision has
        members = decode_members(adapt_result(members, upstream=response.revision, client="legacy"))
    text, is_error = tool_calls.render_result(members, max_bytes=max_bytes)
    return text, tool_calls.TOOL_ERROR if is_error else ""


def _render_failure(exc: errors.ToolgateError) -> tuple[str, str]:
    return tool_calls.render_error(tool_calls.describe_error(exc)), exc.code


@dataclass(frozen=True, slots=True)
class MeteredModels:
    """Charges the tokens of each response to `allowances`, if the model's server reports them."""

    models: Models
    quotas: QuotaLeases
    allowances: Sequence[HolderQuotas]

    async def request(self, request: ModelRequest) -> ModelResponse:
        """See `Models.request`. Raises BudgetExceeded; ServerUnavailable without the control plane."""
        await self.quotas.check_tokens(self.allowances)
        response = await self.models.request(request)
        self.quotas.record_tokens(self.allowances, count_reported_tokens(response.body))
        return response

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEventStream | ModelResponse]:
        """See `Models.stream`. Raises as `request`.

        Requests usage even if the client does not, so that no client evades its quota. The client then does
        not see the event that reports it.
        """
        await self.quotas.check_tokens(self.allowances)
        metered_body, tokens, events = request_usage(request.body), 0, 0

        def on_event(event: ModelEvent) -> bool:
            nonlocal tokens, events
            data, events = event.data or b"", events + 1
            # Some servers report a running total with each event.
            tokens = max(tokens, count_reported_tokens(data))
            return metered_body is None or not is_usage_only(data)

        metered = request if metered_body is None else replace(request, body=metered_body)
        async with self.models.stream(metered) as response:
            if isinstance(response, ModelResponse):
                tokens = count_reported_tokens(response.body)
            else:
                response.on_event = on_event
            try:
                yield response
            except BaseException:
                # Servers report usage last. A client that disconnects earlier is charged one token for each
                # event, and for its request.
                tokens = tokens or len(request.body) * TOKENS // PER_BYTES + events
                raise
            finally:
                self.quotas.record_tokens(self.allowances, tokens)
