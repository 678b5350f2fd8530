"""One `chat.completion.chunk` stream, whatever number of replies it is made of.

One id, one role, one reason to end; the text of each round as it comes, with a blank line between rounds; no
call that was run here. The stream begins with its first word: what fails before that has a status of its own.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolgate.chat.endings import Ending
from toolgate.chat.streamed_replies import Delta
from toolgate.errors import ToolgateError
from toolgate.gateway.chat.tool_loop import ToolEvent
from toolgate.model.raw import Members
from toolgate.model.servers import EMPTY
from toolgate.surfaces.openai.event_stream import EventStream
from toolgate.surfaces.openai.exchange import Exchange
from toolgate.surfaces.openai.wire import DONE, encode_broken, encode_chunk

_PAUSE: Final = msgspec.Raw(b'"\\n\\n"')
_EMPTY_TEXTS: Final = (b"null", b'""')
_KIND: Final = "chat.completion.chunk"
_IN_ALL: Final = frozenset({"id", "created", "model", "system_fingerprint", "service_tier"})
"""What all chunks of a stream say alike, after the first of them."""
_NOT_PASSED: Final = _IN_ALL | {"object", "choices", "usage"}


class ChunkStream:
    """Writes the chunks of one answer."""

    def __init__(self, exchange: Exchange, *, head: Members) -> None:
        """`head` is used as long as the model's server has not given a better one."""
        self.events = EventStream(exchange)
        self._head = head
        self._is_new_round = False
        self._has_text = False
        self._has_role = False
        self.first: Mapping[str, Any] | None = None
        """What the gateway itself says ahead of everything else."""

    def next_round(self) -> None:
        """The model was asked again: its words are set apart from those before."""
        self._is_new_round = self._has_text

    async def show(self, delta: Delta) -> None:
        """What may be shown of a reply."""
        await self._open(delta.head)
        fields = {name: raw for name, raw in delta.fields.items() if name != "role"}
        content = fields.get("content")
        if content is not None and bytes(content) not in _EMPTY_TEXTS:
            if self._is_new_round:
                await self._chunk({"content": _PAUSE})
            self._is_new_round, self._has_text = False, True
        if fields:
            beside = {name: raw for name, raw in delta.head.items() if name not in _NOT_PASSED}
            await self._chunk(fields, delta.choice, beside)

    async def tell(self, event: ToolEvent) -> None:
        """What happens to a tool, as a chunk that clients pass over."""
        said: dict[str, Any] = {"event": event.event, "tool": event.tool, "call_id": event.call_id}
        if event.ok is not None:
            said |= {"ok": event.ok, "ms": event.ms}
        await self._open({})
        await self._write({"choices": [], "toolgate": said})

    async def end(self, ending: Ending, *, with_usage: bool) -> None:
        """The last words, the calls handed over, why it ended, and what was used."""
        await self._open(ending.head)
        if ending.closing:
            await self._chunk({"content": f"\n\n{ending.closing}" if self._has_text else ending.closing})
        for delta in ending.call_deltas:
            await self._chunk(delta)
        extension = {"toolgate": ending.extension} if ending.extension else {}
        await self._chunk({}, {"finish_reason": ending.finish_reason}, extension)
        if with_usage:
            await self._write({"choices": [], "usage": ending.usage})
        await self.events.put(DONE)
        self.events.end()

    async def fail(self, exc: ToolgateError) -> None:
        """It cannot go on: clients raise what they are told here."""
        await self.events.put(encode_broken(exc))
        self.events.end()

    async def _open(self, head: Members) -> None:
        """The first chunks: the role, and what stands ahead of everything."""
        if self._has_role:
            return
        self._has_role = True
        self._head = self._head | {name: raw for name, raw in head.items() if name in _IN_ALL}
        if self.first is not None:
            await self._write({"choices": [], "toolgate": self.first})
        await self._chunk({"role": "assistant", "content": ""})

    async def _chunk(
        self,
        delta: Mapping[str, Any],
        choice: Mapping[str, Any] = EMPTY,
        beside: Mapping[str, Any] = EMPTY,
    ) -> None:
        said = {"finish_reason": None, **choice, "index": 0, "delta": delta}
        await self._write({**beside, "choices": [said]})

    async def _write(self, members: Mapping[str, Any]) -> None:
        await self.events.put(encode_chunk(msgspec.json.encode({**self._head, "object": _KIND, **members})))
