"""One `cchat_send` on the event loop: the way of any chat, within what its run may still take."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Final, Self

import msgspec

from toolgate.chat.calls import CallError, call_error
from toolgate.chat.endings import encode_completion
from toolgate.chat.injection import Injection
from toolgate.chat.requests import ChatRequest
from toolgate.chat.tool_calls import error_text
from toolgate.chat.tool_loop import AskModel
from toolgate.errors import CallCancelled, ModelUnavailable, ToolgateError, UnknownModel, UnknownTool
from toolgate.gateway.chat.scope import ChatScope, chat_scope
from toolgate.gateway.chat.session import OWN, Chat, Opening, check_single, counted, offer
from toolgate.gateway.chat.tool_loop import OwnTool, ToolEvent
from toolgate.gateway.conversing import Heard, Outcome, converse
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.model.chat import BudgetsNarrowed, ChatBudgets
from toolgate.model.invocations import CallMade
from toolgate.model.raw import UNREADABLE, Members, decode_members, encode_raw, object_of
from toolgate.surfaces.wasm.chat_session import ChatSession
from toolgate.surfaces.wasm.context import DOOR, CallLog, TaskContext
from toolgate.surfaces.wasm.guest_tools import GuestTool
from toolgate.wasm.abi import OnThread

FORWARDED: Final = "forwarded"
"""How a chat ends whose calls are not run here."""
_NOT_RUN: Final = CallError(
    code=UnknownTool.code, message="nothing of that name and type is run here", retryable=False
)

CallGuest = Callable[[GuestTool, bytes, int], str]
"""Calls a tool of the guest with a JSON object, for a result of about so many bytes. On its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a guest gets, what it took, and what was said where the session is to go on with it."""

    body: bytes
    usage: Members = field(default_factory=dict)
    history: tuple[msgspec.Raw, ...] | None = None


def failed(exc: ToolgateError, chat: Chat | None = None) -> Answered:
    """The answer that says why there is none; what was said before in `chat`, and what that took, stays."""
    body = msgspec.json.encode(call_error(exc).detail)
    if chat is None:
        return Answered(body=body)
    return Answered(body=body, usage=chat.asking.usage or {}, history=chat.transcript.history())


class Sending:
    """One send of a session. Unless it `runs_tools` the model is asked once: its calls are the guest's."""

    def __init__(
        self, context: TaskContext, session: ChatSession, request: ChatRequest, *, runs_tools: bool
    ) -> None:
        self._context = context
        self._session = session
        self._request = request
        self._runs_tools = runs_tools
        self._driven: Chat | None = None

    async def run(self, call: CallGuest, on_thread: OnThread[str]) -> Answered:
        """Its answer, whatever becomes of it."""
        context = self._context
        try:
            with context.denials_recorded():
                scope = self._scope()
                own = {
                    name: partial(_call_own, on_thread, partial(call, tool), scope.budgets)
                    for name, tool in self._session.tools.items()
                }
                with counted(context.gateway, scope) as outcomes:
                    answered, outcome = await self._answer(scope, own)
                    outcomes.append(outcome)
        except ToolgateError as exc:
            return failed(exc, self._driven)
        return answered

    async def _answer(self, scope: ChatScope, own: Mapping[str, OwnTool]) -> tuple[Answered, str]:
        """The answer, and how it came to its end."""
        context, request = self._context, self._request.asking(scope.model)
        is_driven = self._runs_tools and scope.mode == "inject"
        if is_driven:
            check_single(request)
        view, offered = None, Injection()
        if scope.injects and request.choice.kind != "none":
            view, offered = await offer(context.gateway, request, scope, door=DOOR)
        opening = Opening(request=request, scope=scope, offered=offered, trace=context.trace, own=own)
        chat = Chat(context.gateway, context.models, opening)
        if not is_driven:
            return await self._ask_once(chat, scope), FORWARDED
        self._driven = chat
        outcome = await self._drive(chat, view)
        return self._ended(chat, scope, outcome, view), outcome.finish.reason

    def _scope(self) -> ChatScope:
        """What a request at the chat door would have, and nowhere more than the run has left."""
        context, params, request = self._context, self._session.params, self._request
        scope = chat_scope(
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
        left = BudgetsNarrowed(
            max_total_tool_calls=max(context.calls.left, 0), wall_clock_ms=max(round(left_s * 1e3), 0)
        )
        return replace(scope, budgets=left.of(params.budgets.of(scope.budgets)))

    async def _ask_once(self, chat: Chat, scope: ChatScope) -> Answered:
        self._context.calls.model_asks += 1
        try:
            members = decode_members(await chat.asking.ask_once())
            usage = object_of(members.get("usage"))
        except UNREADABLE as exc:
            raise ModelUnavailable(
                "the model's server answered with something that is no completion"
            ) from exc
        return Answered(body=msgspec.json.encode(members | _asked(scope)), usage=usage or {})

    async def _drive(self, chat: Chat, view: View | None) -> Outcome:
        context = self._context

        async def ask(action: AskModel) -> Heard:
            context.calls.model_asks += 1
            return await chat.asking.ask_whole(action)

        with _Notes(context.calls, view) as notes:
            chat.errand = replace(chat.errand, on_event=notes.take)
            outcome = await converse(context.gateway, chat.talk(ask))
        context.gateway.metrics.chat_rounds.add(chat.loop.rounds)
        return outcome

    def _ended(self, chat: Chat, scope: ChatScope, outcome: Outcome, view: View | None) -> Answered:
        head = {
            "id": encode_raw(f"chatcmpl-{self._context.invocation_id}"),
            "created": encode_raw(int(self._context.wall_s())),
            "model": encode_raw(scope.model),
        }
        ending = chat.ending(outcome, head, said=chat.remarks(outcome, view))
        for call in outcome.handed:  # the guest is told of it, and the history has to be whole
            chat.transcript.answer(call, error_text(_NOT_RUN))
        return Answered(
            body=encode_completion(replace(ending, head=ending.head | _asked(scope))),
            usage=ending.usage or {},
            history=chat.transcript.history(outcome.finish.closing),
        )


class _Notes:
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
        tool = name.removeprefix(OWN) if route is None else route.name
        server_id = "" if route is None else route.server_id
        self._calls.keep(CallMade(server_id=server_id, tool=tool, code=code, ms=ms))


async def _call_own(
    on_thread: OnThread[str], call: Callable[[bytes, int], str], budgets: ChatBudgets, arguments: bytes
) -> str:
    return await on_thread(partial(call, arguments, budgets.max_tool_output_bytes))


def _asked(scope: ChatScope) -> Members:
    """Who was asked, as guests know the answers of SPEAR."""
    return {"_spear": encode_raw({"backend": scope.upstream.upstream_id, "model": scope.model})}
