"""The session of the Chat Completions API, as the chat endpoint and WASM guests run it.

Never responds over HTTP: surfaces subclass `CompletionSession` to stream the model's text, or to count calls.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from toolgate.chat.completions import ClientCompletion, Transcript, build_extension, select_handed_calls
from toolgate.chat.injection import InjectedTools, inject_tools
from toolgate.chat.model_completion import ModelCompletion, add_usage, parse_completion
from toolgate.chat.requests import ChatRequest, check_choice
from toolgate.chat.streamed_completion import CompletionAssembler, CompletionDelta
from toolgate.chat.tool_calls import ToolCall
from toolgate.chat.tool_loop import PromptModel, ToolLoop
from toolgate.errors import InvalidChat
from toolgate.gateway.chat.scope import ChatScope, build_tool_table
from toolgate.gateway.chat.session import CALLER_TOOL_PREFIX, ChatContext, ChatOutcome, ChatSession, ModelTurn
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.view import View
from toolgate.model.json_text import Members
from toolgate.upstream.models.client import ModelRequest, ModelResponse

COMPLETIONS_PATH: Final = "/chat/completions"

OnDelta = Callable[[CompletionDelta], Awaitable[None]]


class CompletionSession(ChatSession):
    """One chat over the Chat Completions API."""

    def __init__(
        self, context: ChatContext, request: ChatRequest, tools: InjectedTools, view: View | None
    ) -> None:
        """`tools` are the tools of `view` that the model gets."""
        caller_tools = {name: f"{CALLER_TOOL_PREFIX}{name}" for name in context.caller_tools}
        loop = ToolLoop(
            names={**tools.names, **caller_tools},
            own=request.declared.own - caller_tools.keys(),
            budgets=context.scope.budgets,
            choice=request.choice,
        )
        super().__init__(context, loop)
        self.request = request
        self.transcript = Transcript(request, tools)
        self.usage: Members | None = None
        """Of all completions together."""
        self._tools = tools
        self._view = view
        self._rounds = 0
        self._last: ModelCompletion | None = None

    async def prompt(self, action: PromptModel) -> ModelTurn:
        began_s = time.perf_counter()
        response = await self.context.models.request(self._build_request(action))
        return self._keep(parse_completion(response.body, nth=self._rounds), began_s)

    async def prompt_once(self) -> bytes:
        """Prompt the model with the request as it is. The history does not include the response."""
        began_s = time.perf_counter()
        response = await self.context.models.request(self._build_request(PromptModel(choice="sent")))
        self.context.measure_model(began_s)
        return response.body

    async def prompt_streamed(self, action: PromptModel, on_delta: OnDelta) -> ModelTurn:
        """Prompt the model, and pass on its text as it comes. Its calls are held back."""
        began_s, assembler = time.perf_counter(), CompletionAssembler(nth=self._rounds)
        async with self.context.models.stream(self._build_request(action)) as events:
            if isinstance(events, ModelResponse):  # some servers ignore `stream` and respond whole
                completion = parse_completion(events.body, nth=self._rounds)
                await on_delta(
                    CompletionDelta(
                        fields=completion.without_calls(), choice=completion.choice, head=completion.head
                    )
                )
            else:
                async for event in events:
                    delta = None if event.data is None else assembler.feed(event.data)
                    if delta is not None:
                        await on_delta(delta)
                completion = assembler.finish()
        return self._keep(completion, began_s)

    def add_result(self, call: ToolCall, content: str) -> None:
        self.transcript.add_result(call, content)

    def complete(
        self, outcome: ChatOutcome, head: Members, *, extension: dict[str, Any], first_id: str | None = None
    ) -> ClientCompletion:
        """Build the client's completion, starting from `head`. Its first call gets `first_id`, if given."""
        completion, handed = self._last, outcome.handed
        return ClientCompletion(
            head=head if completion is None else head | completion.head,
            completion=completion,
            closing=outcome.finish.closing,
            calls=select_handed_calls(completion, handed, first_id) if completion and handed else (),
            usage=self.usage,
            extension=extension,
        )

    def build_extension(self, outcome: ChatOutcome) -> dict[str, Any]:
        """Build the `toolgate` member: why the chat stopped, shadowed tools, and warnings of policy."""
        extension = build_extension(
            outcome.finish, self.loop, self.request.options, shadowed=self._tools.shadowed
        )
        if self._view is not None and self._view.warnings:
            extension["warnings"] = self._view.warnings
        return extension

    def _build_request(self, action: PromptModel) -> ModelRequest:
        body = self.transcript.build_request(action)
        return self.context.build_request(COMPLETIONS_PATH, body, may_retry=self.may_retry)

    def _keep(self, completion: ModelCompletion, began_s: float) -> ModelTurn:
        self.context.measure_model(began_s)
        self._rounds += 1
        self._last = completion
        self.usage = add_usage(self.usage, completion.usage)
        self.transcript.take(completion)
        return ModelTurn(completion.calls, completion.has_text)


async def offer_tools(
    gateway: Gateway, request: ChatRequest, scope: ChatScope, *, surface: str
) -> tuple[View, InjectedTools]:
    """Resolve the caller's view and the tools to offer. Raises InvalidChat, or as `Gateway.wait_for_view`."""
    view = await gateway.wait_for_view(scope.caller)
    gateway.record_listing(view, surface)
    tools = inject_tools(
        build_tool_table(view, gateway.snapshot, scope.upstream.name_profile), request.declared.own
    )
    if not request.declared.other_kinds:
        check_choice(request.choice, {*request.declared.own, *tools.declared})
    return view, tools


def check_single_choice(request: ChatRequest) -> None:
    """Raises InvalidChat for more than one choice: each would have its own tool calls."""
    if msgspec.json.decode(request.members.get("n", b"1")) not in (1, None):
        raise InvalidChat("'n' must be 1 if the gateway runs tools.", param="n")
