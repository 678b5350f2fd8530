"""A Responses request, its input as the model's server knows it, and the next request to the model.

The model's server never saw an `mcp_call` or an approval request: the gateway made them from function calls.
When a client sends them back, they become function calls and outputs again, with their original ids. All
other items stay as they came.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.config import ChatOptions
from toolgate.chat.hidden_turns import ID_PREFIX, MAX_BYTES, MAX_RAW_BYTES, MAX_RESTORED_BYTES, shorten_id
from toolgate.chat.parsing import get_member, missing_param, parse_optional_flag, parse_text, wrong_type
from toolgate.chat.requests import parse_gateway_options
from toolgate.chat.responses import output
from toolgate.chat.responses.output import APPROVAL, CALL, LIST, parse_call_item_id, read_text
from toolgate.chat.responses.tools import (
    GATEWAY_LABEL,
    OfferedTool,
    ResponsesTools,
    parse_responses_tools,
    unknown_label,
)
from toolgate.chat.tool_calls import ToolCall, cut_text, repair_name
from toolgate.chat.tool_loop import PromptModel
from toolgate.errors import InvalidChat, InvalidRecord
from toolgate.model.json_text import NULL, UNREADABLE, Members, decode_members, encode_raw
from toolgate.model.names import parse_server_id

MAX_ITEMS: Final = 10_000  # of an input, the same as for messages: far more than any model's context holds
_SHORTEST: Final = 256  # bytes that an output keeps: the least that `max_tool_output_bytes` may be
_MARKS: Final = tuple(f'"{prefix}'.encode() for prefix in (CALL, LIST, APPROVAL, ID_PREFIX))
_PARSED: Final = ("input", "tools", "tool_choice", "model", "stream")
_SERVERS: Final = "mcp.server_ids"
_CARRIERS: Final = ("call_id", "approval_request_id", "id")  # members whose id may carry a call


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest:
    members: Members
    """The members for the model's server without the fields below, as they came."""
    sent: Members
    """All members for the model's server, as they came: passthrough forwards them."""
    input: tuple[msgspec.Raw, ...]
    tools: ResponsesTools
    choice: msgspec.Raw | None
    model: str
    is_stream: bool
    is_background: bool
    in_conversation: bool
    """The model's server keeps the history: it gets only new items."""
    has_prompt: bool
    """The model's server adds a stored prompt, which may declare functions that the gateway does not know."""
    params: Mapping[str, Any]
    """Session parameters, `mcp.…`."""
    narrows_by_labels: bool
    """Only the labels, which are servers, narrow the scope."""
    options: ChatOptions


def parse_responses_request(body: Members) -> ResponsesRequest:
    """Parse a body. Raises InvalidChat."""
    sent, params, options = parse_gateway_options(body)
    model = get_member(sent, "model")
    if model is None:
        raise missing_param("model")
    tools = parse_responses_tools(sent.get("tools"))
    labels = [tool.label for tool in tools.mcp_tools]
    if labels and params.get("mcp.enabled") is False:
        message = "`mcp.enabled` is false, but an `mcp` tool needs the gateway's tools"
        raise InvalidChat(message, param="tools")
    for label in labels:
        try:
            parse_server_id(label)
        except InvalidRecord as exc:
            raise unknown_label() from exc
    narrows = bool(labels) and GATEWAY_LABEL not in labels and _SERVERS not in params
    implied = {"mcp.enabled": True, **({_SERVERS: labels} if narrows else {})} if labels else {}
    max_calls = _parse_max_tool_calls(get_member(sent, "max_tool_calls"))
    if max_calls is not None:
        limit = min(max_calls, options.budgets.get("max_total_tool_calls", max_calls))
        options = replace(options, budgets={**options.budgets, "max_total_tool_calls": limit})
    return ResponsesRequest(
        members={name: raw for name, raw in sent.items() if name not in _PARSED},
        sent=sent,
        input=parse_input(sent.get("input")),
        tools=tools,
        choice=get_member(sent, "tool_choice"),
        model=parse_text(model, "model"),
        is_stream=parse_optional_flag(sent, "stream"),
        is_background=parse_optional_flag(sent, "background"),
        in_conversation=get_member(sent, "conversation") is not None,
        has_prompt=get_member(sent, "prompt") is not None,
        params={**params, **implied},
        narrows_by_labels=narrows,
        options=options,
    )


def parse_input(raw: msgspec.Raw | None) -> tuple[msgspec.Raw, ...]:
    """Parse `input` into items: a string is one message of the user. Raises InvalidChat."""
    if raw is None or raw == NULL:
        return ()
    try:
        sent = msgspec.json.decode(raw, type=str | list[msgspec.Raw])
    except msgspec.DecodeError as exc:
        raise wrong_type("input", "one of a string or array of objects", raw) from exc
    if isinstance(sent, str):
        return (encode_raw({"role": "user", "content": sent}),)
    if len(sent) > MAX_ITEMS:
        raise InvalidChat(f"`input` has more than {MAX_ITEMS} entries", param="input")
    return tuple(sent)


def _parse_max_tool_calls(raw: msgspec.Raw | None) -> int | None:
    if raw is None:
        return None
    try:
        max_calls = msgspec.json.decode(raw, type=int)
    except UNREADABLE as exc:
        raise InvalidChat("`max_tool_calls` must be an integer", param="max_tool_calls") from exc
    if max_calls < 1:
        raise InvalidChat("`max_tool_calls` must be at least 1", param="max_tool_calls")
    return max_calls


# Calls that clients carry


class CarriedCall(msgspec.Struct, array_like=True, frozen=True):
    """A call that the client must complete, with the outputs of the calls that ran next to it. The model's
    server expects an output of each of its calls, and no node keeps them."""

    call_id: str
    """The id of the model's server."""
    outputs: tuple[tuple[str, str], ...] = ()
    """Call ids and their results."""
    label: str = ""
    name: str = ""
    """The tool in the caller's view, if the call needs approval; empty for the client's own functions."""
    arguments: str = ""


def encode_carried(carried: CarriedCall, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode in at most `max_bytes`, unless the call itself is longer. Cuts outputs to fit. Like hidden
    turns, carried calls have a bounded size in memory."""
    cap = max((len(text.encode()) for _, text in carried.outputs), default=0)
    while True:
        outputs = tuple((call_id, cut_text(text, cap)) for call_id, text in carried.outputs)
        raw = msgspec.json.encode(msgspec.structs.replace(carried, outputs=outputs))
        data = zlib.compress(raw)
        if (len(raw) <= MAX_RAW_BYTES and len(data) <= max_bytes) or cap <= _SHORTEST:
            return data
        cap //= 2


def decode_carried(data: bytes) -> CarriedCall:
    """Decode the output of `encode_carried`. The caller has checked the seal of `data`."""
    return msgspec.json.decode(zlib.decompress(data), type=CarriedCall)


# The input


OpenCarried = Callable[[str], CarriedCall | None]
"""Opens an id that a client sent back. None: it is invalid, expired, or sealed for another principal."""
ChatName = Callable[[str, str], str]
"""Finds the function name that the model knows for a tool, by label and name."""


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that the client approved. Its output takes its place among the items."""

    request_id: str
    carried: CarriedCall


RestoredItem = msgspec.Raw | ApprovedCall


@dataclass(frozen=True, slots=True)
class RestoredInput:
    """The input for the model's server, without the outputs of approved calls."""

    items: tuple[RestoredItem, ...]
    listed: frozenset[str]
    """The labels whose tools this conversation has listed."""

    @property
    def approved(self) -> tuple[ApprovedCall, ...]:
        return tuple(one for one in self.items if isinstance(one, ApprovedCall))


def has_gateway_items(items: Sequence[msgspec.Raw]) -> bool:
    """Whether the gateway must restore any of `items`."""
    return any(mark in bytes(item) for item in items for mark in _MARKS)


def restore_input(
    items: Sequence[msgspec.Raw], *, open_carried: OpenCarried, chat_name: ChatName
) -> RestoredInput:
    """Restore the items as the model's server knows them. Raises InvalidChat for unknown approvals."""
    return _InputRestorer([_decode_item(item) for item in items], open_carried, chat_name).restore(items)


def find_chat_name(offers: Sequence[OfferedTool], label: str, name: str) -> str:
    """Find the function name of a tool. A tool that is no longer offered gets a similar name."""
    for one in offers:
        if one.label == label and one.name == name:
            return one.chat_name
    joined = name.replace(".", "__", 1) if label == GATEWAY_LABEL else f"{label}__{name}"
    return repair_name(f"mcp__{joined}")


class _InputRestorer:
    def __init__(self, members: list[Members], open_carried: OpenCarried, chat_name: ChatName) -> None:
        self._members = members
        self._open_carried = open_carried
        self._opened: dict[str, CarriedCall | None] = {}
        self._opened_bytes = 0
        self._chat_name = chat_name
        self._listed: set[str] = set()
        self._items: list[RestoredItem] = []
        calls = [one for one in members if _is_call(one)]
        self._used = {read_text(one, "approval_request_id") for one in calls}
        """Used approvals: the input holds their calls."""
        self._responded = {
            read_text(one, "approval_request_id")
            for one in members
            if read_text(one, "type") == "mcp_approval_response"
        }
        self._decided: set[str] = set()
        """Requests whose response came so far."""
        self._known = {read_text(one, "call_id") for one in members} | {
            parse_call_item_id(read_text(one, "id") or "") for one in calls
        }

    def restore(self, items: Sequence[msgspec.Raw]) -> RestoredInput:
        for place, (item, members) in enumerate(zip(items, self._members, strict=True)):
            kind = read_text(members, "type")
            if kind == "mcp_list_tools" and _starts(members, "id", LIST):
                self._listed.add(read_text(members, "server_label") or "")
            elif kind == "mcp_approval_request" and _starts(members, "id", APPROVAL):
                self._restore_request(members)
            elif kind == "mcp_approval_response" and _starts(members, "approval_request_id", APPROVAL):
                self._restore_response(members, f"input[{place}]")
            elif _is_call(members):
                call_id = parse_call_item_id(read_text(members, "id") or "") or ""
                self._add_call(members, call_id)
                self._add(output.make_function_output(call_id, output.read_output(members)))
            elif key := next((one for one in _CARRIERS if _starts(members, one, ID_PREFIX)), ""):
                self._restore_handed(members, key)
            else:
                self._items.append(item)
        return RestoredInput(tuple(self._items), frozenset(self._listed))

    def _open(self, sent: str) -> CarriedCall | None:
        """Open an id. Opens each id once, even if it occurs several times."""
        if sent not in self._opened:
            may_open = self._opened_bytes < MAX_RESTORED_BYTES
            self._opened[sent] = carried = self._open_carried(sent) if may_open else None
            self._opened_bytes += 0 if carried is None else sum(len(text) for _, text in carried.outputs)
        return self._opened[sent]

    def _add(self, item: dict[str, Any]) -> None:
        self._items.append(encode_raw(item))

    def _add_call(self, members: Members, call_id: str) -> None:
        label, name = read_text(members, "server_label") or "", read_text(members, "name") or ""
        call = {"type": "function_call", "call_id": call_id, "name": self._chat_name(label, name)}
        self._add({**call, "arguments": read_text(members, "arguments") or "{}"})

    def _restore_request(self, members: Members) -> None:
        """Restore the call of an approval request. Leaves it out if it has no response or is in the input."""
        request_id = read_text(members, "id") or ""
        if request_id in self._responded and request_id not in self._used:
            carried = self._open(request_id)
            call_id = shorten_id(request_id) if carried is None else carried.call_id
            self._add_call(members, call_id)
            self._known.add(call_id)

    def _restore_response(self, members: Members, where: str) -> None:
        request_id = read_text(members, "approval_request_id") or ""
        if request_id in self._used:
            return
        param = f"{where}.approval_request_id"
        if request_id in self._decided:
            raise InvalidChat("duplicate response to an approval request", param=param)
        self._decided.add(request_id)
        carried = self._open(request_id)
        is_approved = msgspec.json.decode(members.get("approve", b"null"))
        if not isinstance(is_approved, bool):
            raise InvalidChat("`approve` must be true or false", param=f"{where}.approve")
        if carried is not None:
            self._add_outputs(carried)
        elif is_approved or shorten_id(request_id) not in self._known:
            hint = "send the input without it: the model makes the call again"
            raise InvalidChat("the approval request is unknown or has expired", param=param, hint=hint)
        if carried is not None and is_approved:
            self._items.append(ApprovedCall(request_id, carried))
            return
        call_id = shorten_id(request_id) if carried is None else carried.call_id
        reason = read_text(members, "reason")
        message = "the user declined this call" + (f": {reason}" if reason else "")
        error = {"code": "approval_declined", "message": message, "retryable": False}
        self._add(output.make_function_output(call_id, json.dumps({"error": error})))

    def _restore_handed(self, members: Members, key: str) -> None:
        """Restore the id of the model's server. Before a result, add the outputs of the calls next to it."""
        sent = read_text(members, key) or ""
        carried = self._open(sent)
        if carried is not None and (read_text(members, "type") or "").endswith(("_output", "_response")):
            self._add_outputs(carried)
        self._add({**members, key: shorten_id(sent) if carried is None else carried.call_id})

    def _add_outputs(self, carried: CarriedCall) -> None:
        for call_id, text in carried.outputs:
            if call_id not in self._known:
                self._known.add(call_id)
                self._add(output.make_function_output(call_id, text))


def _is_call(members: Members) -> bool:
    is_call = read_text(members, "type") == "mcp_call"
    return is_call and parse_call_item_id(read_text(members, "id") or "") is not None


def _starts(members: Members, key: str, prefix: str) -> bool:
    return (read_text(members, key) or "").startswith(prefix)


def _decode_item(item: msgspec.Raw) -> Members:
    """Decode an item; empty if it is not an object, which the model's server rejects."""
    try:
        return decode_members(item)
    except msgspec.DecodeError:
        return {}


# The next request to the model


class ResponsesTranscript:
    """The history of one chat. If the model's server keeps it, each round sends only new items."""

    def __init__(
        self, request: ResponsesRequest, *, model: str, functions: Sequence[bytes], choice: ToolChoice
    ) -> None:
        """`functions` are encoded for Chat Completions."""
        self._request = request
        self._model = model
        self._items: list[msgspec.Raw] = []
        # The Responses API has no inner object `function`.
        flat = (decode_members(decode_members(one)["function"]) for one in functions)
        self._tools = [*request.tools.others, *(encode_raw({"type": "function", **one}) for one in flat)]
        self._choice = choice

    def build_request(self, prompt: PromptModel) -> bytes:
        choices = {"sent": self._choice.raw, "auto": self._choice.after_first_call(), "none": b'"none"'}
        choice = choices[prompt.choice]
        body: dict[str, object] = {"model": self._model, **self._request.members, "input": self._items}
        if self._tools:
            body["tools"] = self._tools
        if choice is not None and (self._tools or choice != b'"none"'):
            body["tool_choice"] = msgspec.Raw(choice)
        if self._request.is_stream:
            body["stream"] = True
        return msgspec.json.encode(body)

    def begin(self, items: Sequence[msgspec.Raw]) -> None:
        self._items = list(items)

    def take(self, items: Sequence[msgspec.Raw]) -> None:
        """Add the items of a response, in a form that its server accepts."""
        self._items = [] if self._request.in_conversation else [*self._items, *items]

    def add_result(self, call: ToolCall, content: str) -> None:
        self._items.append(encode_raw(output.make_function_output(call.call_id, content)))
