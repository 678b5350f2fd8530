"""One chat request whose tools are run here: asked, driven to its end, and answered whole or as a stream."""

from dataclasses import replace
from typing import Any, Final

from toolgate.chat.endings import Ending, encode_completion
from toolgate.chat.tool_loop import AskModel
from toolgate.errors import ToolgateError
from toolgate.gateway.auth.identity import fingerprint_of
from toolgate.gateway.chat.session import Chat, Opening
from toolgate.gateway.conversing import Heard, Outcome, converse
from toolgate.gateway.scope.view import View
from toolgate.model.raw import Members, encode_raw
from toolgate.surfaces.openai.context import ChatParts
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.explanation import explained
from toolgate.surfaces.openai.streaming import ChunkStream

DOOR: Final = "chat"
"""What the audit calls this door."""


class Conversation:
    """One request whose tools are run here. `is_legacy`: its caller knows functions, and no tools."""

    def __init__(
        self, parts: ChatParts, exchange: Exchange, opening: Opening, *, view: View, is_legacy: bool
    ) -> None:
        self._parts = parts
        self._exchange = exchange
        self._opening = opening
        self._view = view
        self._is_legacy = is_legacy
        self._chat = Chat(parts.gateway, parts.models, opening)
        self._head: Members = {
            "id": encode_raw(f"chatcmpl-{exchange.request_id}"),
            "created": encode_raw(int(parts.wall_s())),
            "model": encode_raw(opening.scope.model),
        }

    async def run(self) -> str:
        """Answer it; returns how it ended."""
        reason = await (self._stream() if self._opening.request.is_stream else self._answer())
        self._parts.gateway.metrics.chat_rounds.add(self._chat.loop.rounds)
        return reason

    async def _answer(self) -> str:
        talk = self._chat.talk(self._chat.asking.ask_whole)
        outcome = await converse(self._parts.gateway, talk)
        ending = self._ending(outcome)
        self._exchange.responder.send(200, encode_completion(ending), self._exchange.headers)
        return outcome.finish.reason

    async def _stream(self) -> str:
        chunks = ChunkStream(self._exchange, head=self._head)
        if self._opening.request.asked.explain:
            chunks.first = {"explain": self._explain()}
        chat = self._chat
        chat.asking.is_silent = lambda: not chunks.events.has_begun
        if self._opening.request.asked.progress:
            chat.errand = replace(chat.errand, on_event=chunks.tell)

        async def ask(action: AskModel) -> Heard:
            chunks.next_round()
            return await chat.asking.ask_streamed(action, chunks.show)

        try:
            with chunks.events.kept_alive():
                outcome = await converse(self._parts.gateway, chat.talk(ask))
                await chunks.end(self._ending(outcome), with_usage=self._opening.request.wants_usage)
        except ToolgateError as exc:
            if not chunks.events.has_begun:
                raise
            await chunks.fail(exc)
            return exc.code
        return outcome.finish.reason

    def _ending(self, outcome: Outcome) -> Ending:
        first_id = self._sealed(outcome) if outcome.handed else None
        said = self._extension(outcome)
        ending = self._chat.ending(outcome, self._head, said=said, first_id=first_id)
        return replace(ending, is_legacy=self._is_legacy)

    def _sealed(self, outcome: Outcome) -> str | None:
        """The id that holds what the caller does not see of this turn; None where it sees everything."""
        hidden = self._chat.transcript.hidden(outcome.handed)
        if hidden.is_empty:
            return None
        return self._parts.turns.seal(hidden, principal_id=fingerprint_of(self._exchange.principal))

    def _extension(self, outcome: Outcome) -> dict[str, Any]:
        said = self._chat.remarks(outcome, self._view)
        asked = self._opening.request.asked
        if asked.explain and not self._opening.request.is_stream:
            said["explain"] = self._explain()
        return said

    def _explain(self) -> dict[str, Any]:
        opening, gateway = self._opening, self._parts.gateway
        return explained(gateway, self._exchange.principal, opening.scope.caller, self._view.scope)
