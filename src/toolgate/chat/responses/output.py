"""The items of the Responses API that the gateway makes, and the response as it grows over all rounds.

The id of an item identifies its author. In a history that a client sends back, items of the same types may
come from the model's server, which ran tools itself: those pass unchanged. The client sees a single response:
one id, indices and sequence numbers without gaps, one beginning, one end.

Invariant: the final items are those that the events announced, at the same indices.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from toolgate.chat.model_completion import add_usage
from toolgate.chat.responses.tools import OfferedTool
from toolgate.model.json_text import NULL, Members, as_object, as_text, decode_members, encode_raw

CALL: Final = "mcp_tg"
LIST: Final = "mcpl_tg_"
APPROVAL: Final = "mcpr_tg_"
MESSAGE: Final = "msg_tg_"

Item = dict[str, Any]
Ending = Literal["completed", "incomplete", "failed"]

_IN_PROGRESS: Final[Mapping[str, Any]] = {"status": "in_progress", "output": [], "usage": None}
_NO_USAGE: Final = decode_members(
    b'{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
    b'"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}'
)
"""Sums start here: clients require all of these members, and not every server sends them."""
_SECRETS: Final = ("authorization", "headers")
_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")


def make_tool_list(label: str, offers: Iterable[OfferedTool], *, key: str) -> Item:
    tools = []
    for offer in offers:
        members = decode_members(offer.definition.raw)
        entry: Item = {
            "name": offer.name,
            "description": offer.definition.description or None,
            "input_schema": members.get("inputSchema", {"type": "object"}),
        }
        if "annotations" in members:
            entry["annotations"] = members["annotations"]
        tools.append(entry)
    item = {"id": f"{LIST}{key}", "type": "mcp_list_tools", "server_label": label}
    return {**item, "tools": tools, "error": None}


def make_call(item_id: str, *, label: str, name: str, arguments: str = "") -> Item:
    item = {"id": item_id, "type": "mcp_call", "status": "in_progress", "server_label": label, "name": name}
    return {**item, "arguments": arguments, "approval_request_id": None, "output": None, "error": None}


def make_call_item_id(call_id: str, number: int) -> str:
    """Make the id of the `mcp_call` for a model's call. `number` makes it unique in its response."""
    return f"{CALL}{number}_{call_id}"


def parse_call_item_id(item_id: str) -> str | None:
    """Parse the model's own id of the call; None if the item is not the gateway's."""
    number, separator, call_id = item_id.removeprefix(CALL).partition("_")
    is_valid = item_id.startswith(CALL) and number.isdecimal() and bool(separator) and bool(call_id)
    return call_id if is_valid else None


def end_call_item(item: Item, text: str, *, is_error: bool) -> Item:
    """Complete the item of a call. `text` is what the model gets."""
    if not is_error:
        return {**item, "status": "completed", "output": text}
    content: Any = [{"type": "text", "text": text}]
    with suppress(ValueError):  # the gateway's errors are JSON, a tool's may be any text
        content = json.loads(text)
    return {**item, "status": "failed", "error": {"type": "mcp_tool_execution_error", "content": content}}


def make_approval_request(item_id: str, *, label: str, name: str, arguments: str) -> Item:
    """Make the item of a call that waits for the client's approval."""
    item = {"id": item_id, "type": "mcp_approval_request", "server_label": label}
    return {**item, "name": name, "arguments": arguments}


def make_text_part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def make_function_output(call_id: str, output: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def read_output(members: Members) -> str:
    """Read the text that the model got as a call's result, from the `mcp_call` that a client sends back."""
    output = read_text(members, "output")
    if output is not None:
        return output
    error = msgspec.json.decode(members.get("error", b"null"))
    content = error.get("content") if isinstance(error, dict) else None
    if content is None:
        return json.dumps({"error": error}) if error is not None else ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def read_text(members: Members, key: str) -> str | None:
    """Read a member that is a string; None if it is absent or anything else."""
    return as_text(members.get(key))


def echo_members(sent: Members) -> Members:
    """The members of a request that its response repeats as the client sent them."""
    shown = {"tools": msgspec.Raw(b"[]"), "tool_choice": msgspec.Raw(b'"auto"'), "previous_response_id": NULL}
    shown |= {key: sent[key] for key in shown if sent.get(key, NULL) != NULL}
    if any(b'"%b"' % name.encode() in bytes(shown["tools"]) for name in _SECRETS):
        # A response never repeats the client's credentials for its own servers.
        tools = msgspec.json.decode(shown["tools"], type=list[Members])
        kept = [{key: value for key, value in one.items() if key not in _SECRETS} for one in tools]
        shown["tools"] = encode_raw(kept)
    return shown


class ResponseOutput:
    """One response. Events before `begin` wait for it."""

    def __init__(self, basis: Members, shown: Members, *, is_stream: bool) -> None:
        """`basis` has the members that the model's server leaves out; `shown` replaces its members."""
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
        """The client's id of the response; None before it has begun."""
        return self._head.get("id")

    @property
    def size(self) -> int:
        return len(self._items)

    def drain(self) -> bytes:
        """Take the events since the last time, encoded."""
        frames, self._frames = self._frames, []
        return b"".join(frames)

    def begin(self, response: Members) -> None:
        """Begin the response. Later rounds belong to the same one."""
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
        self._items.append(NULL)
        return len(self._items) - 1

    def send_event(self, kind: str, members: Mapping[str, Any]) -> None:
        if not self._is_stream:
            return
        if self._head:
            self._frame(kind, members)
        else:
            self._waiting.append((kind, dict(members)))

    def add(self, index: int, item: Item | Members | msgspec.Raw) -> None:
        self.send_event("response.output_item.added", {"output_index": index, "item": item})

    def end(self, index: int, item: Item | msgspec.Raw) -> None:
        self._items[index] = item
        self.send_event("response.output_item.done", {"output_index": index, "item": item})

    def list_tools(self, item: Item) -> None:
        index = self.reserve()
        place = {"output_index": index, "item_id": item["id"]}
        self.add(index, {**item, "tools": []})
        self.send_event("response.mcp_list_tools.in_progress", place)
        self.send_event("response.mcp_list_tools.completed", place)
        self.end(index, item)

    def begin_call(self, item: Item) -> int:
        index = self.reserve()
        self.add(index, {**item, "arguments": ""})
        self.send_event("response.mcp_call.in_progress", {"output_index": index, "item_id": item["id"]})
        return index

    def end_call(self, index: int, item: Item, *, text: str, is_error: bool) -> None:
        """Complete a call. `text` is what the model gets."""
        kind = "failed" if is_error else "completed"
        self.send_event(f"response.mcp_call.{kind}", {"output_index": index, "item_id": item["id"]})
        self.end(index, end_call_item(item, text, is_error=is_error))

    def send_arguments(self, index: int, item_id: str, arguments: str) -> None:
        """Send the arguments of a call as one piece."""
        place = {"output_index": index, "item_id": item_id}
        self.send_event("response.mcp_call_arguments.delta", {**place, "delta": arguments})
        self.send_event("response.mcp_call_arguments.done", {**place, "arguments": arguments})

    def put(self, item: Item) -> None:
        index = self.reserve()
        self.add(index, item)
        self.end(index, item)

    def add_message(self, text: str, *, key: str) -> None:
        index, part = self.reserve(), make_text_part(text)
        item = {"id": f"{MESSAGE}{key}", "type": "message", "role": "assistant"}
        place = {"output_index": index, "item_id": item["id"], "content_index": 0}
        self.add(index, {**item, "status": "in_progress", "content": []})
        self.send_event("response.content_part.added", {**place, "part": make_text_part("")})
        self.send_event("response.output_text.delta", {**place, "delta": text, "logprobs": []})
        self.send_event("response.output_text.done", {**place, "text": text, "logprobs": []})
        self.send_event("response.content_part.done", {**place, "part": part})
        self.end(index, {**item, "status": "completed", "content": [part]})

    # The end

    def count(self, usage: msgspec.Raw | None) -> None:
        used = as_object(usage)
        if used is not None:
            self._usage = add_usage(self._usage or _NO_USAGE, used)

    def finish(
        self, response: Members, *, ending: Ending = "completed", extra: Mapping[str, Any] | None = None
    ) -> bytes:
        """Encode the whole response, with the members of the last `response`. A stream keeps its first id."""
        self.begin(response)
        over: dict[str, Any] = {"status": ending, "output": self._items, "usage": self._usage}
        if self._is_stream:
            over["id"] = self._head["id"]
        whole = {**self._basis, **response, **self._shown, **over, **(extra or {})}
        self._frame(f"response.{ending}", {"response": whole})
        return msgspec.json.encode(whole)

    def fail(self, code: str, message: str) -> None:
        """End the response as failed."""
        self.finish(self._head, ending="failed", extra={"error": {"code": code, "message": message}})

    def _frame(self, kind: str, members: Mapping[str, Any]) -> None:
        if self._is_stream:
            data = msgspec.json.encode({"type": kind, "sequence_number": self._sequence, **members})
            self._frames.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data.translate(_LINE_ENDS)))
            self._sequence += 1
