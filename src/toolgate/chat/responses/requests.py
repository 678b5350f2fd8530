"""What a client carries from one request to the next, in the ids of what it is to answer.

The model's server waits for an output of every call it made. Those of calls that were run beside one that the
client is to answer have nowhere else to be: no node keeps anything.

The `input` of a Responses request, as the model's server knows the conversation.

It never saw an `mcp_call` or a request for approval: those are the gateway's, made of function calls. What a
client sends back of them becomes function calls and their outputs again, under the ids they had.

A request to `/v1/responses`, taken apart as far as the gateway acts on it. All else stays as it came.

What a model is asked over the Responses API, round by round.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.hidden_turns import ID_PREFIX, MAX_BYTES, MAX_RAW_BYTES, MAX_RESTORED_BYTES, shorten_id
from toolgate.chat.parsing import get_member, missing_param, parse_optional_flag, parse_text, wrong_type
from toolgate.chat.requests import GatewayOptions, parse_own_fields
from toolgate.chat.responses.output import (
    APPROVAL,
    CALL,
    LIST,
    function_call,
    function_call_output,
    member_text,
    output_text,
    parse_call_item_id,
)
from toolgate.chat.responses.tools import (
    GATEWAY_LABEL,
    OfferedTool,
    ResponsesTools,
    parse_responses_tools,
    unknown_label,
)
from toolgate.chat.tool_calls import ToolCall, cut_text, repair_name
from toolgate.chat.tool_loop import AskModel
from toolgate.errors import InvalidChat, InvalidRecord
from toolgate.model.chat import ChatBudgetLimits
from toolgate.model.json_text import NULL, UNREADABLE, Members, decode_members, encode_raw
from toolgate.model.names import parse_server_id

_SHORTEST: Final = 256


class CarriedCall(msgspec.Struct, array_like=True, frozen=True):
    """One call that is not answered yet, with what was done beside it."""

    call_id: str
    """As the model's server knows it."""
    outputs: tuple[tuple[str, str], ...] = ()
    """Call ids, and what came of them."""
    label: str = ""
    name: str = ""
    """In the caller's view: what an approval is asked for. Empty where the call is the caller's own."""
    arguments: str = ""


def encode_carried(carried: CarriedCall, *, max_bytes: int = MAX_BYTES) -> bytes:
    """As few bytes as it takes, and no more than `max_bytes` unless the call itself has them.

    Nor does it take more memory than hidden turns do when it is opened.
    """
    most = max((len(output.encode()) for _, output in carried.outputs), default=0)
    raw = msgspec.json.encode(carried)
    data = zlib.compress(raw)
    while (len(raw) > MAX_RAW_BYTES or len(data) > max_bytes) and most > _SHORTEST:
        most //= 2
        outputs = tuple((call_id, cut_text(output, most)) for call_id, output in carried.outputs)
        raw = msgspec.json.encode(msgspec.structs.replace(carried, outputs=outputs))
        data = zlib.compress(raw)
    return data


def decode_carried(data: bytes) -> CarriedCall:
    """What was encoded. `data` is of our own making: whoever calls has checked its seal."""
    return msgspec.json.decode(zlib.decompress(data), type=CarriedCall)


MAX_ITEMS: Final = 10_000
_ANSWERS: Final = ("_output", "_response")
_MARKS: Final = tuple(f'"{prefix}'.encode() for prefix in (CALL, LIST, APPROVAL, ID_PREFIX))

OpenCarried = Callable[[str], CarriedCall | None]
"""Gets the id a client sent back. None: it is not one of ours, not this caller's, or too old."""
ChatName = Callable[[str, str], str]
"""The function a model knows as the tool of this label and name."""


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that somebody agreed to: its place among the items is where its output goes."""

    request_id: str
    carried: CarriedCall


RestoredItem = msgspec.Raw | ApprovedCall


@dataclass(frozen=True, slots=True)
class RestoredInput:
    """The input for the model's server, but for the outputs of approved calls."""

    items: tuple[RestoredItem, ...]
    listed: frozenset[str]
    """The labels whose tools this conversation has seen listed."""

    @property
    def approved(self) -> tuple[ApprovedCall, ...]:
        return tuple(one for one in self.items if isinstance(one, ApprovedCall))


def parse_input(raw: msgspec.Raw | None) -> tuple[msgspec.Raw, ...]:
    """`input` as items: a text is one message of the user. Raises InvalidChat."""
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


def has_gateway_items(items: Sequence[msgspec.Raw]) -> bool:
    """Whether anything in them is the gateway's to restore."""
    return any(mark in bytes(item) for item in items for mark in _MARKS)


def restore_input(
    items: Sequence[msgspec.Raw], *, open_carried: OpenCarried, chat_name: ChatName
) -> RestoredInput:
    """The items as the model's server knows them. Raises InvalidChat for approvals of nothing."""
    return _InputRestorer([_members(item) for item in items], open_carried, chat_name).restore(items)


def chat_name(offers: Sequence[OfferedTool], label: str, name: str) -> str:
    """The function that stood for a tool. One that is no longer offered gets a name much like it had."""
    for one in offers:
        if one.label == label and one.name == name:
            return one.chat_name
    joined = name.replace(".", "__", 1) if label == GATEWAY_LABEL else f"{label}__{name}"
    return repair_name(f"mcp__{joined}")


class _InputRestorer:
    """One conversation."""

    def __init__(self, all_members: list[Members], open_carried: OpenCarried, chat_name: ChatName) -> None:
        self._members = all_members
        self._open_carried = open_carried
        self._opened: dict[str, CarriedCall | None] = {}
        self._opened_bytes = 0
        self._chat_name = chat_name
        self._listed: set[str] = set()
        self._out: list[RestoredItem] = []
        ours = [one for one in all_members if _is_call(one)]
        self._ended = {member_text(one, "approval_request_id") for one in ours}
        """Approvals that were used: the calls stand in the conversation themselves."""
        self._answered = {
            member_text(one, "approval_request_id")
            for one in all_members
            if member_text(one, "type") == "mcp_approval_response"
        }
        self._decided: set[str] = set()
        """Requests whose answer was met."""
        self._known = {member_text(one, "call_id") for one in all_members} | {
            parse_call_item_id(member_text(one, "id") or "") for one in ours
        }

    def restore(self, items: Sequence[msgspec.Raw]) -> RestoredInput:
        for place, (item, members) in enumerate(zip(items, self._members, strict=True)):
            kind = member_text(members, "type")
            if kind == "mcp_list_tools" and _begins(members, "id", LIST):
                self._listed.add(member_text(members, "server_label") or "")
            elif kind == "mcp_approval_request" and _begins(members, "id", APPROVAL):
                self._restore_request(members)
            elif kind == "mcp_approval_response" and _begins(members, "approval_request_id", APPROVAL):
                self._restore_approval(members, place)
            elif _is_call(members):
                self._restore_call(members)
            elif (key := _find_carrier(members)) is not None:
                self._restore_handed(members, key)
            else:
                self._out.append(item)
        return RestoredInput(tuple(self._out), frozenset(self._listed))

    def _open(self, sent: str) -> CarriedCall | None:
        """What an id holds. It is opened once, however often it stands there."""
        if sent not in self._opened:
            may_open = self._opened_bytes < MAX_RESTORED_BYTES
            self._opened[sent] = carried = self._open_carried(sent) if may_open else None
            self._opened_bytes += 0 if carried is None else sum(len(output) for _, output in carried.outputs)
        return self._opened[sent]

    def _say(self, item: dict[str, Any]) -> None:
        self._out.append(encode_raw(item))

    def _restore_call(self, members: Members) -> None:
        call_id = parse_call_item_id(member_text(members, "id") or "") or ""
        self._say_call(members, call_id)
        self._say(function_call_output(call_id, output_text(members)))

    def _say_call(self, members: Members, call_id: str) -> None:
        label, name = member_text(members, "server_label") or "", member_text(members, "name") or ""
        arguments = member_text(members, "arguments") or "{}"
        self._say(function_call(call_id, name=self._chat_name(label, name), arguments=arguments))

    def _restore_request(self, members: Members) -> None:
        """One that nobody answered, or whose call stands there by itself, is nothing to the model."""
        request_id = member_text(members, "id") or ""
        if request_id in self._answered and request_id not in self._ended:
            carried = self._open(request_id)
            call_id = shorten_id(request_id) if carried is None else carried.call_id
            self._say_call(members, call_id)
            self._known.add(call_id)

    def _restore_approval(self, members: Members, place: int) -> None:
        request_id = member_text(members, "approval_request_id") or ""
        if request_id in self._ended:
            return
        if request_id in self._decided:
            raise InvalidChat(
                "this approval request is answered twice", param=f"input[{place}].approval_request_id"
            )
        self._decided.add(request_id)
        carried = self._open(request_id)
        is_approved = msgspec.json.decode(members.get("approve", b"null"))
        if not isinstance(is_approved, bool):
            raise InvalidChat("`approve` must be true or false", param=f"input[{place}].approve")
        if carried is not None:
            self._say_outputs(carried)
        elif is_approved or shorten_id(request_id) not in self._known:
            raise InvalidChat(
                "there is no such approval request, or it is too old",
                param=f"input[{place}].approval_request_id",
                hint="ask again without it: the model makes the call anew",
            )
        if carried is not None and is_approved:
            self._out.append(ApprovedCall(request_id, carried))
        else:
            call_id = shorten_id(request_id) if carried is None else carried.call_id
            self._say(function_call_output(call_id, _render_declined(member_text(members, "reason"))))

    def _restore_handed(self, members: Members, key: str) -> None:
        """The id the model's server knows, and with an answer those of the calls that were run beside it."""
        sent = member_text(members, key) or ""
        carried = self._open(sent)
        own_id = shorten_id(sent) if carried is None else carried.call_id
        if carried is not None and (member_text(members, "type") or "").endswith(_ANSWERS):
            self._say_outputs(carried)
        self._say({**members, key: own_id})

    def _say_outputs(self, carried: CarriedCall) -> None:
        for call_id, output in carried.outputs:
            if call_id not in self._known:
                self._known.add(call_id)
                self._say(function_call_output(call_id, output))


def _is_call(members: Members) -> bool:
    is_call = member_text(members, "type") == "mcp_call"
    return is_call and parse_call_item_id(member_text(members, "id") or "") is not None


def _find_carrier(members: Members) -> str | None:
    """The member whose id carries something; None where none does."""
    keys = ("call_id", "approval_request_id", "id")
    return next((key for key in keys if _begins(members, key, ID_PREFIX)), None)


def _begins(members: Members, key: str, prefix: str) -> bool:
    return (member_text(members, key) or "").startswith(prefix)


def _render_declined(reason: str | None) -> str:
    message = "the user declined this call" + (f": {reason}" if reason else "")
    return json.dumps({"error": {"code": "approval_declined", "message": message, "retryable": False}})


def _members(item: msgspec.Raw) -> Members:
    """An item that is no object is the model's server's to refuse."""
    try:
        return decode_members(item)
    except msgspec.DecodeError:
        return {}


_TAKEN: Final = ("input", "tools", "tool_choice", "model", "stream")
_SERVERS: Final = "mcp.server_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest:
    """What a request asks for."""

    members: Members
    """All that is neither ours nor one of the fields below, as it came."""
    sent: Members
    """As `members`, with `input`, `tools` and the others as they came: what is forwarded untouched."""
    input: tuple[msgspec.Raw, ...]
    tools: ResponsesTools
    choice: msgspec.Raw | None
    model: str
    is_stream: bool
    is_background: bool
    in_conversation: bool
    """The model's server keeps the conversation: it is told only what is new."""
    has_prompt: bool
    """It is asked with a prompt of its own, which may declare functions that are not known here."""
    params: Mapping[str, Any]
    """Session parameters, `mcp.…`."""
    narrows_by_labels: bool
    """Labels that are servers say which are asked for, and nothing else does."""
    asked: GatewayOptions


def parse_responses_request(body: Members) -> ResponsesRequest:
    """The request in `body`, or InvalidChat."""
    sent, params, asked = parse_own_fields(body)
    model = get_member(sent, "model")
    if model is None:
        raise missing_param("model")
    tools = parse_responses_tools(sent.get("tools"))
    labels = _check_labels(tools, params)
    narrows = bool(labels) and GATEWAY_LABEL not in labels and _SERVERS not in params
    asks = {"mcp.enabled": True, **({_SERVERS: labels} if narrows else {})} if labels else {}
    most = _max_tool_calls(get_member(sent, "max_tool_calls"))
    return ResponsesRequest(
        members={name: raw for name, raw in sent.items() if name not in _TAKEN},
        sent=sent,
        input=parse_input(sent.get("input")),
        tools=tools,
        choice=get_member(sent, "tool_choice"),
        model=parse_text(model, "model"),
        is_stream=parse_optional_flag(sent, "stream"),
        is_background=parse_optional_flag(sent, "background"),
        in_conversation=get_member(sent, "conversation") is not None,
        has_prompt=get_member(sent, "prompt") is not None,
        params={**params, **asks},
        narrows_by_labels=narrows,
        asked=asked if most is None else replace(asked, budgets=_narrow_budgets(asked, most)),
    )


def _check_labels(tools: ResponsesTools, params: Mapping[str, Any]) -> list[str]:
    """The labels to be resolved here. A tool that says one asks for tools to be offered."""
    labels = [one.label for one in tools.ours]
    if labels and params.get("mcp.enabled") is False:
        raise InvalidChat("`mcp.enabled` is false, and an `mcp` tool is to be resolved here", param="tools")
    for label in labels:
        try:
            parse_server_id(label)
        except InvalidRecord as exc:
            raise unknown_label() from exc
    return labels


def _max_tool_calls(raw: msgspec.Raw | None) -> int | None:
    if raw is None:
        return None
    try:
        most = msgspec.json.decode(raw, type=int)
    except UNREADABLE as exc:
        raise InvalidChat("`max_tool_calls` must be an integer", param="max_tool_calls") from exc
    if most < 1:
        raise InvalidChat("`max_tool_calls` must be at least 1", param="max_tool_calls")
    return most


def _narrow_budgets(asked: GatewayOptions, most: int) -> ChatBudgetLimits:
    already = asked.budgets.max_total_tool_calls
    return replace(asked.budgets, max_total_tool_calls=most if already is None else min(most, already))


class ResponsesTranscript:
    """One conversation. Where the model's server keeps it, each round brings only what is new."""

    def __init__(
        self,
        request: ResponsesRequest,
        *,
        model: str,
        functions: Sequence[bytes],
        choice: ToolChoice,
    ) -> None:
        """`functions` are encoded as chat completions have them."""
        self._request = request
        self._model = model
        self._items: list[msgspec.Raw] = []
        self._tools = [*request.tools.others, *map(flat_function, functions)]
        self._choice = choice

    def body(self, ask: AskModel) -> bytes:
        """The request to the model's server."""
        choice = {
            "sent": self._choice.raw,
            "auto": self._choice.after_first_call(),
            "none": b'"none"',
        }[ask.choice]
        body: dict[str, object] = {"model": self._model, **self._request.members, "input": self._items}
        if self._tools:
            body["tools"] = self._tools
        if choice is not None and (self._tools or choice != b'"none"'):
            body["tool_choice"] = msgspec.Raw(choice)
        if self._request.is_stream:
            body["stream"] = True
        return msgspec.json.encode(body)

    def begin(self, items: Sequence[msgspec.Raw]) -> None:
        """The input."""
        self._items = list(items)

    def take(self, items: Sequence[msgspec.Raw]) -> None:
        """A reply, as its server takes it back."""
        if self._request.in_conversation:
            self._items = []
        else:
            self._items += items

    def answer(self, call: ToolCall, content: str) -> None:
        """What came of one call of the newest reply."""
        output = function_call_output(call.call_id, content)
        self._items.append(encode_raw(output))


def flat_function(encoded: bytes) -> msgspec.Raw:
    """A function of chat completions as the Responses API has it: all in one level."""
    function: Members = decode_members(decode_members(encoded)["function"])
    return encode_raw({"type": "function", **function})
