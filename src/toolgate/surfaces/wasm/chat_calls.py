"""`cchat_*`: chats of a guest with models, with the tools of its task and the guest's functions.

A request is built from the session, and runs like a request at the chat endpoint: with the same scope, loop
and history. Even after a failure, the guest gets a response that it can read.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import msgspec

from toolgate.chat.completions import encode_completion
from toolgate.chat.injection import InjectedTools
from toolgate.chat.requests import ChatRequest
from toolgate.chat.tool_calls import CallError, describe_error, render_error
from toolgate.chat.tool_loop import PromptModel
from toolgate.errors import CallCancelled, ModelUnavailable, ToolgateError, UnknownModel, UnknownTool
from toolgate.gateway.chat.completions import CompletionSession, check_single_choice, offer_tools
from toolgate.gateway.chat.scope import ChatScope, count_chat, resolve_chat_scope
from toolgate.gateway.chat.session import (
    CALLER_TOOL_PREFIX,
    CallerTool,
    ChatContext,
    ChatOutcome,
    ModelTurn,
    ToolEvent,
)
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.model.invocations import InvocationCall
from toolgate.model.json_text import UNREADABLE, Members, as_object, decode_members, encode_raw
from toolgate.surfaces.wasm import chat_session
from toolgate.surfaces.wasm.context import SURFACE, TaskContext, TaskGuest
from toolgate.wasm.abi import Errno, HostcallFault, OnThread

FORWARDED: Final = "forwarded"  # the outcome of a chat whose calls do not run here
_NOT_RUN: Final = CallError(
    code=UnknownTool.code, message="no function has this name and type", retryable=False
)


class SendResult(NamedTuple):
    """The response for a guest, its usage, and the history with which the session continues."""

    body: bytes
    usage: Members
    history: tuple[msgspec.Raw, ...] | None = None


def build_failure(exc: ToolgateError, chat: CompletionSession | None = None) -> SendResult:
    """Build the response to a send that fails, with the history and usage of `chat` so far."""
    body = msgspec.json.encode(describe_error(exc).detail)
    if chat is None:
        return SendResult(body, {})
    return SendResult(body, chat.usage or {}, chat.transcript.build_history())


@dataclass(kw_only=True)
class ChatSend:
    """One `cchat_send` on the event loop, within the remaining limits of its run.

    Unless it `runs_tools`, it prompts the model once, and the guest runs the calls.
    """

    guest: TaskGuest
    chat: chat_session.GuestChat
    request: ChatRequest
    runs_tools: bool
    _session: "_GuestSession | None" = None

    async def run(self, on_thread: OnThread[str]) -> SendResult:
        """Never raises a ToolgateError."""
        context, chat = self.guest.context, self.chat
        try:
            with context.record_denials():
                scope = self._resolve_scope()
                max_bytes = scope.budgets.max_tool_output_bytes

                async def call_tool(tool: chat_session.GuestTool, arguments: bytes) -> str:
                    call = partial(chat_session.call_guest_tool, self.guest, tool, chat.params, arguments)
                    return await on_thread(partial(call, max_bytes=max_bytes))

                tools = {name: partial(call_tool, tool) for name, tool in chat.tools.items()}
                with count_chat(context.gateway, scope) as outcomes:
                    result, outcome = await self._run_chat(scope, tools)
                    outcomes.append(outcome)
        except ToolgateError as exc:
            return build_failure(exc, self._session)
        return result

    async def _run_chat(
        self, scope: ChatScope, caller_tools: Mapping[str, CallerTool]
    ) -> tuple[SendResult, str]:
        context, request = self.guest.context, self.request.with_model(scope.model)
        view, tools = None, InjectedTools()
        runs_tools = self.runs_tools and scope.mode == "inject"
        if runs_tools:
            check_single_choice(request)
        if scope.injects and request.choice.kind != "none":
            view, tools = await offer_tools(context.gateway, request, scope, surface=SURFACE)
        chat_context = ChatContext.begin(context.gateway, context.models, scope, context.trace, caller_tools)
        session = _GuestSession(chat_context, request, tools, view, task=context)
        if not runs_tools:
            return await self._prompt_once(session, scope), FORWARDED
        self._session = session
        try:
            outcome = await session.run()
        finally:
            for tool in session.running.values():  # tools that still run after the chat has ended
                session.list_call(tool, CallCancelled.code, 0)
        return self._complete(session, outcome), outcome.finish.reason

    def _resolve_scope(self) -> ChatScope:
        """The scope of the same request at the chat endpoint, narrowed to the remaining limits of the run."""
        context, params, request = self.guest.context, self.chat.params, self.request
        scope = resolve_chat_scope(
            context.gateway,
            context.caller.principal,
            task_id=context.caller.task_id,
            model=request.model,
            params={**request.params, **params.mcp},
            options=request.options,
        )
        backend = params.text("backend")
        if backend and scope.upstream.upstream_id != backend:
            raise UnknownModel(f"chat upstream `{backend[:200]}` does not serve this model")
        left_s = context.deadline_s - asyncio.get_running_loop().time()
        left = {
            "max_total_tool_calls": max(context.calls.left, 0),
            "wall_clock_ms": max(round(left_s * 1e3), 0),
        }
        return replace(scope, budgets=scope.budgets.narrow(params.budgets).narrow(left))

    async def _prompt_once(self, session: CompletionSession, scope: ChatScope) -> SendResult:
        self.guest.context.calls.model_asks += 1
        try:
            members = decode_members(await session.prompt_once())
            usage = as_object(members.get("usage"))
        except UNREADABLE as exc:
            raise ModelUnavailable("the model's server sent a response that is not a completion") from exc
        return SendResult(msgspec.json.encode(members | _backend_member(scope)), usage or {})

    def _complete(self, session: CompletionSession, outcome: ChatOutcome) -> SendResult:
        scope = session.context.scope
        head = {
            "id": encode_raw(f"chatcmpl-{self.guest.context.invocation_id}"),
            "created": encode_raw(int(self.guest.context.wall_s())),
            "model": encode_raw(scope.model),
        }
        completion = session.complete(outcome, head, extension=session.build_extension(outcome))
        for call in outcome.handed:  # the guest gets the calls, and each needs a result in the history
            session.add_result(call, render_error(_NOT_RUN))
        body = encode_completion(replace(completion, head=completion.head | _backend_member(scope)))
        return SendResult(
            body, completion.usage or {}, session.transcript.build_history(outcome.finish.closing)
        )


class _GuestSession(CompletionSession):
    """A chat of a guest. Its run counts and records each tool call."""

    def __init__(
        self,
        context: ChatContext,
        request: ChatRequest,
        tools: InjectedTools,
        view: View | None,
        *,
        task: TaskContext,
    ) -> None:
        super().__init__(context, request, tools, view)
        self._calls = task.calls
        self._routes: Mapping[str, Route] = {} if view is None else view.routes
        self.running: dict[str, str] = {}

    async def prompt(self, action: PromptModel) -> ModelTurn:
        self._calls.model_asks += 1
        return await super().prompt(action)

    async def on_tool_event(self, event: ToolEvent) -> None:
        """Raises ToolCallLimit before a call beyond the limit."""
        if event.event == "tool_started":
            self._calls.count_call()
            self.running[event.call_id] = event.tool
        elif self.running.pop(event.call_id, None) is not None:
            self.list_call(event.tool, event.code, event.ms or 0)

    def list_call(self, name: str, code: str, ms: int) -> None:
        route = self._routes.get(name)
        tool = name.removeprefix(CALLER_TOOL_PREFIX) if route is None else route.name
        server_id = "" if route is None else route.server_id
        self._calls.keep(InvocationCall(server_id=server_id, tool=tool, code=code, ms=ms))


def _backend_member(scope: ChatScope) -> Members:
    """The upstream and model of a response, as SPEAR reports them."""
    return {"_spear": encode_raw({"backend": scope.upstream.upstream_id, "model": scope.model})}


# The commands of `cchat_ctl` and the flags of `cchat_send`, with SPEAR's numbers.
SET_PARAM: Final = 1
GET_METRICS: Final = 2
ENABLE_METRICS: Final = 1
AUTO_TOOL_CALL: Final = 2
MAX_ROLE_BYTES: Final = 256  # roles have up to ten characters; the model's server rejects invalid ones
MAX_FUNCTION_BYTES: Final = 1_048_576  # generous for a schema, and a quarter of a session's limit


def cchat_create(guest: TaskGuest) -> int:
    return guest.fds.open(chat_session.GuestChat(guest.context.limits))


def cchat_write_msg(guest: TaskGuest, fd: int, *buffers: int) -> int:
    """Add a message. `buffers`: role and content, each with its length."""
    role_pointer, role_length, content_pointer, content_length = buffers
    session = guest.fds.get(fd, chat_session.GuestChat)
    role = guest.read(role_pointer, role_length, most=MAX_ROLE_BYTES)
    content = guest.read(content_pointer, content_length, most=guest.context.limits.max_session_bytes)
    chat_session.check_kept(guest)
    message = {"role": role.decode(errors="replace"), "content": content.decode(errors="replace")}
    session.write_message(encode_raw(message))
    return 0


def cchat_write_fn(guest: TaskGuest, fd: int, index: int, pointer: int, length: int) -> int:
    session = guest.fds.get(fd, chat_session.GuestChat)
    data = guest.read(pointer, length, most=MAX_FUNCTION_BYTES)
    chat_session.check_kept(guest)
    session.write_tool(chat_session.parse_guest_tool(data, index))
    return 0


def cchat_ctl(guest: TaskGuest, fd: int, command: int, argument: int, argument_length: int) -> int:
    entry = guest.fds.get(fd, chat_session.ChatEntry)
    if command == SET_PARAM:
        data = guest.read(argument, guest.read_u32(argument_length), most=chat_session.MAX_PARAM_BYTES)
        # A response has no parameters, but parameters that are invalid for a session fail here, too.
        params = entry.params if isinstance(entry, chat_session.GuestChat) else chat_session.SessionParams()
        chat_session.check_kept(guest)
        params.set(guest, *chat_session.parse_param(data))
        return 0
    if command != GET_METRICS:
        raise HostcallFault(Errno.EINVAL)
    usage = guest.fds.get(fd, chat_session.ChatResponse).usage
    return guest.put_out(argument, argument_length, msgspec.json.encode(usage))


def cchat_send(guest: TaskGuest, fd: int, flags: int) -> int:
    """Prompt the model, and run its calls. Returns a descriptor of the response, which may be an error.

    The descriptor is opened first, so that no paid response is lost.
    """
    chat = guest.fds.get(fd, chat_session.GuestChat)
    chat_session.check_kept(guest)
    response = chat_session.ChatResponse()
    with chat.sending():
        response_fd = guest.fds.open(response)
        try:
            result = _send_chat(guest, chat, runs_tools=bool(flags & AUTO_TOOL_CALL))
        except BaseException:
            if guest.fds.entries.get(response_fd) is response:  # the guest may have closed it meanwhile
                guest.fds.close(response_fd)
            raise
    response.body = result.body
    response.usage = result.usage if flags & ENABLE_METRICS else {}
    return response_fd


def _send_chat(guest: TaskGuest, chat: chat_session.GuestChat, *, runs_tools: bool) -> SendResult:
    try:
        request = chat.build_request()
    except ToolgateError as exc:
        return build_failure(exc)
    result = guest.serve(ChatSend(guest=guest, chat=chat, request=request, runs_tools=runs_tools).run)
    if result.history is not None:
        chat.replace_history(result.history, of=request)
    return result


def cchat_recv(guest: TaskGuest, fd: int, out: int, out_length: int) -> int:
    response = guest.fds.get(fd, chat_session.ChatResponse)
    guest.check_out(out, out_length)
    if response.body is None:
        raise HostcallFault(Errno.EAGAIN)
    return guest.put_out(out, out_length, response.body)


def cchat_close(guest: TaskGuest, fd: int) -> int:
    guest.fds.close(fd, chat_session.ChatEntry)
    return 0


CALLS: Final = (
    *(cchat_create, cchat_write_msg, cchat_write_fn),
    *(cchat_ctl, cchat_send, cchat_recv, cchat_close),
)
