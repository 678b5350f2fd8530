"""One chat request whose tools are run here: asked, driven to its end, and answered whole or as a stream."""

from dataclasses import dataclass, replace
from typing import Any, Final

from toolgate.chat.endings import Ending, encode_completion, handed_calls, remarks
from toolgate.chat.injection import Injection
from toolgate.chat.loop import AskModel, ToolLoop
from toolgate.chat.requests import ChatRequest
from toolgate.chat.transcript import Transcript
from toolgate.errors import ToolgateError
from toolgate.gateway.asking import Asking
from toolgate.gateway.caller import Trace
from toolgate.gateway.chat_scope import ChatScope
from toolgate.gateway.conversing import Ask, Heard, Outcome, Talk, converse
from toolgate.gateway.tool_runs import Errand
from toolgate.gateway.view import View
from toolgate.model.raw import Members, encode_raw
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.explanation import explained
from toolgate.surfaces.openai.parts import ChatParts
from toolgate.surfaces.openai.streaming import ChunkStream

DOOR: Final = "chat"
"""What the audit calls this door."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a conversation begins with."""

    request: ChatRequest
    is_legacy: bool
    """Whether the caller knows functions, and no tools: it is answered in kind."""
    scope: ChatScope
    view: View
    offered: Injection


class Conversation:
    """One request whose tools are run here."""

    def __init__(self, parts: ChatParts, exchange: Exchange, opening: Opening) -> None:
        self._parts = parts
        self._exchange = exchange
        self._opening = opening
        request, scope, offered = opening.request, opening.scope, opening.offered
        deadline_s = scope.deadline_s()
        self._transcript = Transcript(request, offered)
        self._loop = ToolLoop(
            names=offered.names,
            own=request.declared.own,
            budgets=scope.budgets,
            choice=request.choice,
        )
        self._asking = Asking(
            models=parts.models,
            upstream=scope.upstream,
            transcript=self._transcript,
            loop=self._loop,
            deadline_s=deadline_s,
            metrics=parts.gateway.metrics,
        )
        self._errand = Errand(
            caller=scope.caller,
            budgets=scope.budgets,
            trace=Trace(DOOR, "", exchange.request_id),
            deadline_s=deadline_s,
        )
        self._head: Members = {
            "id": encode_raw(f"chatcmpl-{exchange.request_id}"),
            "created": encode_raw(int(parts.wall_s())),
            "model": encode_raw(scope.model),
        }

    async def run(self) -> str:
        """Answer it; returns how it ended."""
        reason = await (self._stream() if self._opening.request.is_stream else self._answer())
        self._parts.gateway.metrics.chat_rounds.add(self._loop.rounds)
        return reason

    async def _answer(self) -> str:
        talk = self._talk(self._asking.ask_whole)
        outcome = await converse(self._parts.gateway, talk)
        ending = self._ending(outcome)
        self._exchange.responder.send(200, encode_completion(ending), self._exchange.headers)
        return outcome.finish.reason

    async def _stream(self) -> str:
        chunks = ChunkStream(self._exchange, head=self._head)
        if self._opening.request.asked.explain:
            chunks.first = {"explain": self._explain()}
        self._asking.is_silent = lambda: not chunks.events.has_begun
        if self._opening.request.asked.progress:
            self._errand = replace(self._errand, on_event=chunks.tell)

        async def ask(action: AskModel) -> Heard:
            chunks.next_round()
            return await self._asking.ask_streamed(action, chunks.show)

        try:
            with chunks.events.kept_alive():
                outcome = await converse(self._parts.gateway, self._talk(ask))
                await chunks.end(self._ending(outcome), with_usage=self._opening.request.wants_usage)
        except ToolgateError as exc:
            if not chunks.events.has_begun:
                raise
            await chunks.fail(exc)
            return exc.code
        return outcome.finish.reason

    def _talk(self, ask: Ask) -> Talk:
        return Talk(
            loop=self._loop,
            history=self._transcript,
            ask=ask,
            errand=self._errand,
            upstream_id=self._opening.scope.upstream.upstream_id,
        )

    def _ending(self, outcome: Outcome) -> Ending:
        reply = self._asking.last
        head = self._head if reply is None else self._head | reply.head
        calls: list[Members] = []
        if outcome.handed and reply is not None:
            calls = handed_calls(reply, outcome.handed, self._sealed(outcome))
        return Ending(
            head=head,
            reply=reply,
            closing=outcome.finish.closing,
            calls=calls,
            usage=self._asking.usage,
            extension=self._extension(outcome),
            is_legacy=self._opening.is_legacy,
        )

    def _sealed(self, outcome: Outcome) -> str | None:
        """The id that holds what the caller does not see of this turn; None where it sees everything."""
        hidden = self._transcript.hidden(outcome.handed)
        if hidden.is_empty:
            return None
        return self._parts.turns.seal(hidden, principal_id=self._exchange.principal.id)

    def _extension(self, outcome: Outcome) -> dict[str, Any]:
        asked, shadowed = self._opening.request.asked, self._opening.offered.shadowed
        said = remarks(outcome.finish, self._loop, asked, shadowed=shadowed)
        if self._opening.view.warnings:
            said["warnings"] = self._opening.view.warnings
        if asked.explain and not self._opening.request.is_stream:
            said["explain"] = self._explain()
        return said

    def _explain(self) -> dict[str, Any]:
        opening, gateway = self._opening, self._parts.gateway
        return explained(gateway, self._exchange.principal, opening.scope.caller, opening.view.scope)
