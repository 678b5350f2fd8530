"""One `cchat_send` on the event loop: the way of any chat, within what its run may still take.

`cchat_*`: chats of a guest with models, with the tools of its task and with functions of its own.

A request is made from what the session holds, and goes the way of any request at the chat door: the same
scope, the same loop, the same history. Whatever becomes of it is an answer that the guest can read.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Final, Self

import msgspec

from toolgate.chat.completions import encode_completion
from toolgate.chat.injection import InjectedTools
from toolgate.chat.requests import ChatRequest
from toolgate.chat.tool_calls import CallError, call_error, render_error
from toolgate.chat.tool_loop import AskModel
from toolgate.errors import CallCancelled, ModelUnavailable, ToolgateError, UnknownModel, UnknownTool
from toolgate.gateway.chat.scope import ChatScope, resolve_chat_scope
from toolgate.gateway.chat.session import (
    CALLER_TOOL_PREFIX,
    CompletionContext,
    CompletionSession,
    check_single,
    count_chat,
    offer_tools,
)
from toolgate.gateway.chat.tool_loop import CallerTool, DialogueOutcome, ModelTurn, ToolEvent, run_dialogue
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.model.chat import ChatBudgetLimits, ChatBudgets
from toolgate.model.invocations import InvocationCall
from toolgate.model.json_text import UNREADABLE, Members, as_object, decode_members, encode_raw
from toolgate.surfaces.wasm.chat_session import (
    MAX_PARAM_BYTES,
    MAX_SESSION_BYTES,
    ChatEntry,
    ChatResponse,
    ChatSession,
    GuestTool,
    SessionParams,
    call_guest_tool,
    check_kept,
    parse_guest_tool,
    parse_param,
)
from toolgate.surfaces.wasm.context import DOOR, CallLog, TaskContext, TaskGuest
from toolgate.wasm.abi import SPEAR, Errno, HostcallFault, HostFunction, OnThread
from toolgate.wasm.signatures import host_functions

FORWARDED: Final = "forwarded"
"""How a chat ends whose calls are not run here."""
_NOT_RUN: Final = CallError(
    code=UnknownTool.code, message="nothing of that name and type is run here", retryable=False
)

CallGuest = Callable[[GuestTool, bytes, int], str]
"""Calls a tool of the guest with a JSON object, for a result of about so many bytes. On its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What a guest gets, what it took, and what was said where the session is to go on with it."""

    body: bytes
    usage: Members = field(default_factory=dict)
    history: tuple[msgspec.Raw, ...] | None = None


def build_failure(exc: ToolgateError, chat: CompletionSession | None = None) -> SendResult:
    """The answer that says why there is none; what was said before in `chat`, and what that took, stays."""
    body = msgspec.json.encode(call_error(exc).detail)
    if chat is None:
        return SendResult(body=body)
    return SendResult(body=body, usage=chat.asking.usage or {}, history=chat.transcript.history())


class ChatSend:
    """One send of a session. Unless it `runs_tools` the model is asked once: its calls are the guest's."""

    def __init__(
        self, context: TaskContext, session: ChatSession, request: ChatRequest, *, runs_tools: bool
    ) -> None:
        self._context = context
        self._session = session
        self._request = request
        self._runs_tools = runs_tools
        self._driven: CompletionSession | None = None

    async def run(self, call: CallGuest, on_thread: OnThread[str]) -> SendResult:
        """Its answer, whatever becomes of it."""
        context = self._context
        try:
            with context.record_denials():
                scope = self._scope()
                own = {
                    name: partial(_call_own, on_thread, partial(call, tool), scope.budgets)
                    for name, tool in self._session.tools.items()
                }
                with count_chat(context.gateway, scope) as outcomes:
                    answered, outcome = await self._answer(scope, own)
                    outcomes.append(outcome)
        except ToolgateError as exc:
            return build_failure(exc, self._driven)
        return answered

    async def _answer(self, scope: ChatScope, own: Mapping[str, CallerTool]) -> tuple[SendResult, str]:
        """The answer, and how it came to its end."""
        context, request = self._context, self._request.asking(scope.model)
        is_driven = self._runs_tools and scope.mode == "inject"
        if is_driven:
            check_single(request)
        view, offered = None, InjectedTools()
        if scope.injects and request.choice.kind != "none":
            view, offered = await offer_tools(context.gateway, request, scope, door=DOOR)
        opening = CompletionContext(
            request=request, scope=scope, offered=offered, trace=context.trace, own=own
        )
        chat = CompletionSession(context.gateway, context.models, opening)
        if not is_driven:
            return await self._ask_once(chat, scope), FORWARDED
        self._driven = chat
        outcome = await self._drive(chat, view)
        return self._ended(chat, scope, outcome, view), outcome.finish.reason

    def _scope(self) -> ChatScope:
        """What a request at the chat door would have, and nowhere more than the run has left."""
        context, params, request = self._context, self._session.params, self._request
        scope = resolve_chat_scope(
            context.gateway,
            context.caller.principal,
            task_id=context.caller.task_id,
            model=request.model,
            params={**request.params, **params.mcp},
            asked=request.asked,
        )
        if params.backend and scope.upstream.upstream_id != params.backend:
            raise UnknownModel(f"chat upstream `{params.backend[:200]}` does not serve this model")
        left_s = context.deadline_s - asyncio.get_running_loop().time()
        left = ChatBudgetLimits(
            max_total_tool_calls=max(context.calls.left, 0), wall_clock_ms=max(round(left_s * 1e3), 0)
        )
        return replace(scope, budgets=left.of(params.budgets.of(scope.budgets)))

    async def _ask_once(self, chat: CompletionSession, scope: ChatScope) -> SendResult:
        self._context.calls.model_asks += 1
        try:
            members = decode_members(await chat.asking.prompt_once())
            usage = as_object(members.get("usage"))
        except UNREADABLE as exc:
            raise ModelUnavailable(
                "the model's server answered with something that is no completion"
            ) from exc
        return SendResult(body=msgspec.json.encode(members | _backend_member(scope)), usage=usage or {})

    async def _drive(self, chat: CompletionSession, view: View | None) -> DialogueOutcome:
        context = self._context

        async def ask(action: AskModel) -> ModelTurn:
            context.calls.model_asks += 1
            return await chat.asking.prompt_whole(action)

        with _CallRecorder(context.calls, view) as notes:
            chat.errand = replace(chat.errand, on_event=notes.take)
            outcome = await run_dialogue(context.gateway, chat.talk(ask))
        context.gateway.metrics.chat_rounds.add(chat.loop.rounds)
        return outcome

    def _ended(
        self, chat: CompletionSession, scope: ChatScope, outcome: DialogueOutcome, view: View | None
    ) -> SendResult:
        head = {
            "id": encode_raw(f"chatcmpl-{self._context.invocation_id}"),
            "created": encode_raw(int(self._context.wall_s())),
            "model": encode_raw(scope.model),
        }
        ending = chat.ending(outcome, head, said=chat.remarks(outcome, view))
        for call in outcome.handed:  # the guest is told of it, and the history has to be whole
            chat.transcript.answer(call, render_error(_NOT_RUN))
        return SendResult(
            body=encode_completion(replace(ending, head=ending.head | _backend_member(scope))),
            usage=ending.usage or {},
            history=chat.transcript.history(outcome.finish.closing),
        )


class _CallRecorder:
    """Takes down each call of a tool for its run, which pays for it. What has not ended then is cancelled."""

    def __init__(self, calls: CallLog, view: View | None) -> None:
        self._calls = calls
        self._routes: Mapping[str, Route] = {} if view is None else view.routes
        self._running: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tool in self._running.values():
            self._keep(tool, CallCancelled.code, 0)

    async def take(self, event: ToolEvent) -> None:
        """Raises ToolCallLimit before a call that is one too many."""
        if event.event == "tool_started":
            self._calls.spend()
            self._running[event.call_id] = event.tool
        elif self._running.pop(event.call_id, None) is not None:
            self._keep(event.tool, event.code, event.ms or 0)

    def _keep(self, name: str, code: str, ms: int) -> None:
        route = self._routes.get(name)
        tool = name.removeprefix(CALLER_TOOL_PREFIX) if route is None else route.name
        server_id = "" if route is None else route.server_id
        self._calls.keep(InvocationCall(server_id=server_id, tool=tool, code=code, ms=ms))


async def _call_own(
    on_thread: OnThread[str], call: Callable[[bytes, int], str], budgets: ChatBudgets, arguments: bytes
) -> str:
    return await on_thread(partial(call, arguments, budgets.max_tool_output_bytes))


def _backend_member(scope: ChatScope) -> Members:
    """Who was asked, as guests know the answers of SPEAR."""
    return {"_spear": encode_raw({"backend": scope.upstream.upstream_id, "model": scope.model})}


SET_PARAM: Final = 1
GET_METRICS: Final = 2
ENABLE_METRICS: Final = 1
AUTO_TOOL_CALL: Final = 2
MAX_ROLE_BYTES: Final = 256
MAX_FUNCTION_BYTES: Final = 1_048_576


def cchat_create(guest: TaskGuest) -> int:
    return guest.fds.open(ChatSession())


def cchat_write_msg(guest: TaskGuest, fd: int, *buffers: int) -> int:
    """One more message. `buffers`: role and content, each with its length."""
    role_pointer, role_length, content_pointer, content_length = buffers
    session = guest.fds.get(fd, ChatSession)
    role = guest.read(role_pointer, role_length, most=MAX_ROLE_BYTES)
    content = guest.read(content_pointer, content_length, most=MAX_SESSION_BYTES)
    check_kept(guest.fds)
    message = {"role": role.decode(errors="replace"), "content": content.decode(errors="replace")}
    session.write_message(encode_raw(message))
    return 0


def cchat_write_fn(guest: TaskGuest, fd: int, index: int, pointer: int, length: int) -> int:
    """A function of the guest's table becomes a tool that models may call."""
    session = guest.fds.get(fd, ChatSession)
    data = guest.read(pointer, length, most=MAX_FUNCTION_BYTES)
    check_kept(guest.fds)
    session.write_tool(parse_guest_tool(data, index))
    return 0


def cchat_ctl(guest: TaskGuest, fd: int, command: int, argument: int, argument_length: int) -> int:
    """Set a parameter of a session, or tell what an answer has used."""
    entry = guest.fds.get(fd, ChatEntry)
    if command == SET_PARAM:
        data = guest.read(argument, guest.read_u32(argument_length), most=MAX_PARAM_BYTES)
        # An answer takes none, but what no session may say is refused here, too.
        params = entry.params if isinstance(entry, ChatSession) else SessionParams()
        check_kept(guest.fds)
        params.set(guest, *parse_param(data))
        return 0
    if command != GET_METRICS:
        raise HostcallFault(Errno.EINVAL)
    usage = guest.fds.get(fd, ChatResponse).usage
    return guest.put_out(argument, argument_length, msgspec.json.encode(usage))


def cchat_send(guest: TaskGuest, fd: int, flags: int) -> int:
    """Ask the model, and run what it calls; a descriptor of the answer, be it that of a failure.

    That is opened first: an answer that was paid for has its place.
    """
    session = guest.fds.get(fd, ChatSession)
    check_kept(guest.fds)
    response = ChatResponse()
    with session.sending():
        response_fd = guest.fds.open(response)
        try:
            answered = _send(guest, session, runs_tools=bool(flags & AUTO_TOOL_CALL))
        except BaseException:
            _drop(guest, response_fd, response)
            raise
    response.body = answered.body
    response.usage = answered.usage if flags & ENABLE_METRICS else {}
    return response_fd


def cchat_recv(guest: TaskGuest, fd: int, out: int, out_length: int) -> int:
    """An answer. It stays where it is."""
    response = guest.fds.get(fd, ChatResponse)
    guest.check_out(out, out_length)
    if response.body is None:
        raise HostcallFault(Errno.EAGAIN)
    return guest.put_out(out, out_length, response.body)


def cchat_close(guest: TaskGuest, fd: int) -> int:
    guest.fds.close(fd, ChatEntry)
    return 0


def _send(guest: TaskGuest, session: ChatSession, *, runs_tools: bool) -> SendResult:
    try:
        request = session.request()
    except ToolgateError as exc:
        return build_failure(exc)
    sending = ChatSend(guest.context, session, request, runs_tools=runs_tools)

    def call(tool: GuestTool, arguments: bytes, max_bytes: int) -> str:
        return call_guest_tool(guest, tool, session.arena, arguments, max_bytes=max_bytes)

    answered = guest.serve(partial(sending.run, call))
    if answered.history is not None:
        session.replace_history(answered.history, of=request)
    return answered


def _drop(guest: TaskGuest, fd: int, response: ChatResponse) -> None:
    """Unless the guest has closed it itself meanwhile."""
    if guest.fds.entries().get(fd) is response:
        guest.fds.close(fd)


CHAT_FUNCTIONS: Final[tuple[HostFunction[TaskContext], ...]] = host_functions(
    SPEAR,
    {
        "cchat_create": cchat_create,
        "cchat_write_msg": cchat_write_msg,
        "cchat_write_fn": cchat_write_fn,
        "cchat_ctl": cchat_ctl,
        "cchat_send": cchat_send,
        "cchat_recv": cchat_recv,
        "cchat_close": cchat_close,
    },
)
