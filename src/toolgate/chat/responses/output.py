"""The items of the Responses API that the gateway makes: lists of tools, calls, requests for approval, words.

Their ids say whose they are. In a history that a client sends back, items of the same types may come from
the model's server, which ran tools itself; those are none of ours.

The answer of the Responses API as it grows, over all rounds: its items, and the events that tell of them.

To the client it is one response: one id, indices and sequence numbers without gaps, one beginning, one end.
Invariant: the items in the end are those that the events told of, at the same indices.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from toolgate.chat.replies import add_usage
from toolgate.chat.responses.tools import OfferedTool
from toolgate.model.json_text import NULL, Members, as_object, as_text, decode_members, encode_raw

CALL: Final = "mcp_tg"
LIST: Final = "mcpl_tg_"
APPROVAL: Final = "mcpr_tg_"
MESSAGE: Final = "msg_tg_"

Item = dict[str, Any]


def mcp_list_tools(label: str, offers: Iterable[OfferedTool], *, key: str) -> Item:
    """What is offered under one label."""
    return {
        "id": f"{LIST}{key}",
        "type": "mcp_list_tools",
        "server_label": label,
        "tools": [_list_entry(offer) for offer in offers],
        "error": None,
    }


def mcp_call(item_id: str, *, label: str, name: str, arguments: str = "") -> Item:
    """A call that has begun."""
    return {
        "id": item_id,
        "type": "mcp_call",
        "status": "in_progress",
        "server_label": label,
        "name": name,
        "arguments": arguments,
        "approval_request_id": None,
        "output": None,
        "error": None,
    }


def call_item_id(call_id: str, number: int) -> str:
    """The id of the `mcp_call` that is made of a model's call, the so-many-th of an answer."""
    return f"{CALL}{number}_{call_id}"


def parse_call_item_id(item_id: str) -> str | None:
    """The model's own id of the call; None where the item is not the gateway's."""
    number, separator, call_id = item_id.removeprefix(CALL).partition("_")
    is_ours = item_id.startswith(CALL) and number.isdecimal() and bool(separator) and bool(call_id)
    return call_id if is_ours else None


def end_call_item(item: Item, text: str, *, is_error: bool) -> Item:
    """`item`, a call, with what came of it. The error is what the model is told."""
    if not is_error:
        return {**item, "status": "completed", "output": text}
    return {
        **item,
        "status": "failed",
        "error": {"type": "mcp_tool_execution_error", "content": _parse_error_content(text)},
    }


def mcp_approval_request(item_id: str, *, label: str, name: str, arguments: str) -> Item:
    """A call that waits until somebody agrees to it."""
    return {
        "id": item_id,
        "type": "mcp_approval_request",
        "server_label": label,
        "name": name,
        "arguments": arguments,
    }


def message_item(text: str, *, key: str, status: str = "completed") -> Item:
    """What the gateway itself has to say to the caller."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}] if text else []
    return {
        "id": f"{MESSAGE}{key}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def function_call(call_id: str, *, name: str, arguments: str) -> Item:
    """A call as the model's server takes it back."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def function_call_output(call_id: str, output: str) -> Item:
    """What came of a call, for the model."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def output_text(members: Members) -> str:
    """What the model was told of a call that ended, from its `mcp_call` as a client sends it back."""
    output = member_text(members, "output")
    if output is not None:
        return output
    error = msgspec.json.decode(members.get("error", b"null"))
    content = error.get("content") if isinstance(error, dict) else None
    if content is None:
        return json.dumps({"error": error}) if error is not None else ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def member_text(members: Members, key: str) -> str | None:
    """A member that is a text; None where it is absent or anything else."""
    return as_text(members.get(key))


def _parse_error_content(text: str) -> Any:
    """Errors are JSON where they are ours, and any text where they are a tool's."""
    try:
        return json.loads(text)
    except ValueError:
        return [{"type": "text", "text": text}]


def _list_entry(offer: OfferedTool) -> Item:
    members = decode_members(offer.definition.raw)
    listed: Item = {
        "name": offer.name,
        "description": offer.definition.description or None,
        "input_schema": members.get("inputSchema", {"type": "object"}),
    }
    return {**listed, "annotations": members["annotations"]} if "annotations" in members else listed


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

    def send_event(self, kind: str, members: Mapping[str, Any]) -> None:
        """One event. `members` are those that are its own."""
        if not self._is_stream:
            return
        if self._head:
            self._frame(kind, members)
        else:
            self._waiting.append((kind, dict(members)))

    def add(self, index: int, item: Item | Members | msgspec.Raw) -> None:
        """An item appears."""
        self.send_event("response.output_item.added", {"output_index": index, "item": item})

    def end(self, index: int, item: Item | msgspec.Raw) -> None:
        """An item is what it will be."""
        self._items[index] = item
        self.send_event("response.output_item.done", {"output_index": index, "item": item})

    def list_tools(self, item: Item) -> None:
        """What a label offers."""
        index = self.reserve()
        place = {"output_index": index, "item_id": item["id"]}
        self.add(index, {**item, "tools": []})
        self.send_event("response.mcp_list_tools.in_progress", place)
        self.send_event("response.mcp_list_tools.completed", place)
        self.end(index, item)

    def begin_call(self, item: Item) -> int:
        """A tool is about to be called. Its arguments are told of later."""
        index = self.reserve()
        self.add(index, {**item, "arguments": ""})
        self.send_event("response.mcp_call.in_progress", {"output_index": index, "item_id": item["id"]})
        return index

    def end_call(self, index: int, item: Item, *, text: str, is_error: bool) -> None:
        """A tool was called, or refused."""
        kind = "failed" if is_error else "completed"
        self.send_event(f"response.mcp_call.{kind}", {"output_index": index, "item_id": item["id"]})
        self.end(index, end_call_item(item, text, is_error=is_error))

    def send_arguments(self, index: int, item_id: str, arguments: str) -> None:
        """The arguments of a call at once, where they did not come piece by piece."""
        place = {"output_index": index, "item_id": item_id}
        self.send_event("response.mcp_call_arguments.delta", {**place, "delta": arguments})
        self.send_event("response.mcp_call_arguments.done", {**place, "arguments": arguments})

    def put(self, item: Item) -> None:
        """An item that is there at once."""
        index = self.reserve()
        self.add(index, item)
        self.end(index, item)

    def add_message(self, text: str, *, key: str) -> None:
        """A message of the gateway's own."""
        item = message_item(text, key=key)
        index = self.reserve()
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        place = {"output_index": index, "item_id": item["id"], "content_index": 0}
        self.add(index, message_item("", key=key, status="in_progress"))
        self.send_event("response.content_part.added", {**place, "part": part})
        self.send_event("response.output_text.delta", {**place, "delta": text, "logprobs": []})
        self.send_event("response.output_text.done", {**place, "text": text, "logprobs": []})
        self.send_event("response.content_part.done", {**place, "part": {**part, "text": text}})
        self.end(index, item)

    # The end

    def count(self, usage: msgspec.Raw | None) -> None:
        """Add what one round used, if it says so."""
        used = as_object(usage)
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


def echo_members(sent: Members) -> Members:
    """What a response says of the request, as it was sent: the model may be asked with something else."""
    shown = {
        "tools": msgspec.Raw(b"[]"),
        "tool_choice": msgspec.Raw(b'"auto"'),
        "previous_response_id": NULL,
    }
    shown |= {key: sent[key] for key in shown if sent.get(key, NULL) != NULL}
    return {**shown, "tools": _strip_secrets(shown["tools"])}


def _strip_secrets(tools: msgspec.Raw) -> msgspec.Raw:
    """What a caller's own tools show to servers is not shown again to whoever reads the answer."""
    if not any(b'"%b"' % name.encode() in bytes(tools) for name in _SECRETS):
        return tools
    kept = [
        {key: value for key, value in one.items() if key not in _SECRETS}
        for one in msgspec.json.decode(tools, type=list[Members])
    ]
    return encode_raw(kept)
