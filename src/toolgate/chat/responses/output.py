"""The answer of the Responses API as it grows, over all rounds: its items, and the events that tell of them.

To the client it is one response: one id, indices and sequence numbers without gaps, one beginning, one end.
Invariant: the items in the end are those that the events told of, at the same indices.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from toolgate.chat.responses_items import Item, ended, message
from toolgate.chat.usage import add_usage
from toolgate.model.raw import NULL, Members, decode_members, encode_raw, object_of

Ending = Literal["completed", "incomplete", "failed"]

_IN_PROGRESS: Final[Mapping[str, Any]] = {"status": "in_progress", "output": [], "usage": None}
_NOTHING_USED: Final = decode_members(
    b'{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
    b'"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}'
)
"""Sums begin here: clients insist on all of these, and not every server says them."""
_SECRETS: Final = ("authorization", "headers")
_encode = msgspec.json.encode
_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")


class ResponseOutput:
    """One answer. What is put in before `begin` is told of after it."""

    def __init__(self, basis: Members, shown: Members, *, is_stream: bool) -> None:
        """`basis` stands where the model's server does not say what every response has; `shown` always."""
        self._basis = basis
        self._shown = shown
        self._is_stream = is_stream
        self._items: list[Item | msgspec.Raw] = []
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._frames: list[bytes] = []
        self._sequence = 0
        self._head: Members = {}
        self._usage: Members | None = None

    @property
    def first_id(self) -> msgspec.Raw | None:
        """What the client knows the response by once it has begun; None before."""
        return self._head.get("id")

    @property
    def size(self) -> int:
        """How many items there are."""
        return len(self._items)

    def drain(self) -> bytes:
        """The events since the last time, as they go to the client."""
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def begin(self, response: Members) -> None:
        """The model's server has begun. Only the first time is told: later rounds are the same response."""
        if self._head:
            return
        self._head = {**self._basis, **response}
        begun = {**self._head, **self._shown, **_IN_PROGRESS}
        self._frame("response.created", {"response": begun})
        self._frame("response.in_progress", {"response": begun})
        waiting, self._waiting = self._waiting, []
        for kind, members in waiting:
            self._frame(kind, members)

    # Items

    def reserve(self) -> int:
        """The index of the next item."""
        self._items.append(NULL)
        return len(self._items) - 1

    def tell(self, kind: str, members: Mapping[str, Any]) -> None:
        """One event. `members` are those that are its own."""
        if not self._is_stream:
            return
        if self._head:
            self._frame(kind, members)
        else:
            self._waiting.append((kind, dict(members)))

    def add(self, index: int, item: Item | Members | msgspec.Raw) -> None:
        """An item appears."""
        self.tell("response.output_item.added", {"output_index": index, "item": item})

    def end(self, index: int, item: Item | msgspec.Raw) -> None:
        """An item is what it will be."""
        self._items[index] = item
        self.tell("response.output_item.done", {"output_index": index, "item": item})

    def list_tools(self, item: Item) -> None:
        """What a label offers."""
        index = self.reserve()
        place = {"output_index": index, "item_id": item["id"]}
        self.add(index, {**item, "tools": []})
        self.tell("response.mcp_list_tools.in_progress", place)
        self.tell("response.mcp_list_tools.completed", place)
        self.end(index, item)

    def begin_call(self, item: Item) -> int:
        """A tool is about to be called. Its arguments are told of later."""
        index = self.reserve()
        self.add(index, {**item, "arguments": ""})
        self.tell("response.mcp_call.in_progress", {"output_index": index, "item_id": item["id"]})
        return index

    def end_call(self, index: int, item: Item, *, text: str, is_error: bool) -> None:
        """A tool was called, or refused."""
        kind = "failed" if is_error else "completed"
        self.tell(f"response.mcp_call.{kind}", {"output_index": index, "item_id": item["id"]})
        self.end(index, ended(item, text, is_error=is_error))

    def tell_arguments(self, index: int, item_id: str, arguments: str) -> None:
        """The arguments of a call at once, where they did not come piece by piece."""
        place = {"output_index": index, "item_id": item_id}
        self.tell("response.mcp_call_arguments.delta", {**place, "delta": arguments})
        self.tell("response.mcp_call_arguments.done", {**place, "arguments": arguments})

    def put(self, item: Item) -> None:
        """An item that is there at once."""
        index = self.reserve()
        self.add(index, item)
        self.end(index, item)

    def say(self, text: str, *, key: str) -> None:
        """A message of the gateway's own."""
        item = message(text, key=key)
        index = self.reserve()
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        place = {"output_index": index, "item_id": item["id"], "content_index": 0}
        self.add(index, message("", key=key, status="in_progress"))
        self.tell("response.content_part.added", {**place, "part": part})
        self.tell("response.output_text.delta", {**place, "delta": text, "logprobs": []})
        self.tell("response.output_text.done", {**place, "text": text, "logprobs": []})
        self.tell("response.content_part.done", {**place, "part": {**part, "text": text}})
        self.end(index, item)

    # The end

    def count(self, usage: msgspec.Raw | None) -> None:
        """Add what one round used, if it says so."""
        used = object_of(usage)
        if used is not None:
            self._usage = add_usage(self._usage or _NOTHING_USED, used)

    def finish(
        self, response: Members, *, ending: Ending = "completed", beside: Mapping[str, Any] | None = None
    ) -> bytes:
        """The whole response, made of the last round's `response`. Streamed, it has the id it began with."""
        self.begin(response)
        over: dict[str, Any] = {"status": ending, "output": self._items, "usage": self._usage}
        if self._is_stream:
            over["id"] = self._head["id"]
        whole = {**self._basis, **response, **self._shown, **over, **(beside or {})}
        self._frame(f"response.{ending}", {"response": whole})
        return _encode(whole)

    def fail(self, code: str, message: str) -> None:
        """The model's server did not come to an end."""
        error = {"code": code, "message": message}
        self.finish(self._head, ending="failed", beside={"error": error})

    def _frame(self, kind: str, members: Mapping[str, Any]) -> None:
        if self._is_stream:
            data = _encode({"type": kind, "sequence_number": self._sequence, **members})
            self._frames.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data.translate(_LINE_ENDS)))
            self._sequence += 1


def shown_members(sent: Members) -> Members:
    """What a response says of the request, as it was sent: the model may be asked with something else."""
    shown = {
        "tools": msgspec.Raw(b"[]"),
        "tool_choice": msgspec.Raw(b'"auto"'),
        "previous_response_id": NULL,
    }
    shown |= {key: sent[key] for key in shown if sent.get(key, NULL) != NULL}
    return {**shown, "tools": _without_secrets(shown["tools"])}


def _without_secrets(tools: msgspec.Raw) -> msgspec.Raw:
    """What a caller's own tools show to servers is not shown again to whoever reads the answer."""
    if not any(b'"%b"' % name.encode() in bytes(tools) for name in _SECRETS):
        return tools
    kept = [
        {key: value for key, value in one.items() if key not in _SECRETS}
        for one in msgspec.json.decode(tools, type=list[Members])
    ]
    return encode_raw(kept)
