"""A request for chat completions, read as the OpenAI API reads it, and the fields in it that are ours.

Only what decides something here is looked at. All else, known or not, is carried as it came.

`functions` and `function_call`, as requests had them before there were `tools`.

The tool loop knows tools alone: a request of the old form is put into the new one before it, and what is
handed to the caller is put back into the old one after it. The old form has no ids: one that has to come
back travels in the `function_call` itself, as clients send an assistant's message again as they got it.

A request as it is passed on: as it came, byte for byte, but for what is ours in it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, get_args

import msgspec

from toolgate.chat.client_tools import ClientTools, ToolChoice, parse_choice, parse_tools
from toolgate.chat.config import parse_budgets
from toolgate.chat.hidden_turns import ID_PREFIX
from toolgate.chat.messages import check_messages, parse_messages
from toolgate.chat.parsing import (
    get_member,
    parse_array,
    parse_members,
    parse_optional_flag,
    parse_text,
    quote,
    unsupported_value,
)
from toolgate.errors import InvalidChat, InvalidParams
from toolgate.model.chat import ChatBudgetLimits, ChatMode
from toolgate.model.json_text import (
    NULL,
    UNREADABLE,
    KnownNames,
    Members,
    as_array,
    as_object,
    as_text,
    decode_array,
    decode_members,
    describe_ambiguity,
    encode_raw,
)

_MCP: Final = "mcp."
_OURS: Final = "toolgate."
_TASK_ONLY: Final = "mcp.task_"
SESSION_KEYS: Final = ("mcp.enabled", "mcp.server_ids", "mcp.tool_allowlist", "mcp.tool_denylist")
_METADATA: Final = KnownNames(prefixes=(_MCP, _OURS))
_BODY: Final = KnownNames(
    *("model", "messages", "input", "instructions", "tools", "tool_choice", "functions", "function_call"),
    *("stream", "stream_options", "metadata", "toolgate", "temperature", "max_tokens", "n", "store"),
    *("max_completion_tokens", "max_output_tokens", "parallel_tool_calls", "previous_response_id", "user"),
    prefixes=(_MCP, _OURS),
)
"""What decides which model is asked, and for what. All others may be there, each under a name of its own."""
OPTION_KEYS: Final = ("toolgate.mode", "toolgate.budgets", "toolgate.explain", "toolgate.progress")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """What a request asks of the gateway itself."""

    mode: ChatMode | None = None
    budgets: ChatBudgetLimits = field(default_factory=ChatBudgetLimits)
    explain: bool = False
    """Whether the answer tells why each tool was offered or not."""
    progress: bool = False
    """Whether a stream tells of the tools that are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request for a completion."""

    members: Members
    """All of it but the messages and what is ours."""
    messages: tuple[msgspec.Raw, ...]
    model: str
    is_stream: bool
    wants_usage: bool
    """Whether the stream is to end with what was used."""
    declared: ClientTools
    """The caller's own tools."""
    choice: ToolChoice
    params: Mapping[str, Any]
    """Its session parameters, `mcp.…`."""
    asked: GatewayOptions

    def asking(self, model: str) -> "ChatRequest":
        """The same request to a model of another name."""
        return replace(self, model=model, members={**self.members, "model": encode_raw(model)})


def parse_chat_request(body: Members) -> ChatRequest:
    """The request in a body, or InvalidChat, in the words of the OpenAI API where it has some."""
    members, params, asked = parse_own_fields(body)
    model = _parse_model(get_member(members, "model"))
    messages = parse_messages(members.pop("messages", None))
    check_messages(messages)
    is_stream = parse_optional_flag(members, "stream")
    choice = members.get("tool_choice")
    return ChatRequest(
        members=members,
        messages=messages,
        model=model,
        is_stream=is_stream,
        wants_usage=_parse_stream_options(get_member(members, "stream_options"), is_stream=is_stream),
        declared=parse_tools(members),
        choice=parse_choice(None if choice is None else bytes(choice)),
        params=params,
        asked=asked,
    )


def check_choice(choice: ToolChoice, declared: Collection[str]) -> None:
    """InvalidChat where a choice demands what is not `declared`, once all tools are known."""
    for name in choice.names:
        if name not in declared:
            raise InvalidChat(
                f"Invalid value for 'tool_choice': '{quote(name)}' not found in 'tools' parameter.",
                param="tool_choice",
            )
    if choice.kind == "required" and not declared:
        raise InvalidChat(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            param="tool_choice",
        )


def _parse_model(raw: msgspec.Raw | None) -> str:
    model = "" if raw is None else parse_text(raw, "model")
    if not model:
        raise InvalidChat("you must provide a model parameter", param="model")
    return model


def _parse_stream_options(raw: msgspec.Raw | None, *, is_stream: bool) -> bool:
    if raw is None:
        return False
    if not is_stream:
        raise InvalidChat(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    options = parse_members(raw, "stream_options")
    return parse_optional_flag(options, "include_usage", param="stream_options.include_usage")


def parse_own_fields(body: Members) -> tuple[Members, Mapping[str, Any], GatewayOptions]:
    """A body without what is ours, its session parameters, and what it asks of the gateway; or InvalidChat.

    What is ours stands in a member `toolgate`, or dotted in `metadata` or in the body itself.
    """
    _check_names(body, _BODY, "the body")
    members = {name: raw for name, raw in body.items() if name != "toolgate" and not _is_ours(name)}
    said = _OptionCollector()
    for name, raw in body.items():
        if _is_ours(name):
            said.add(name, raw, name)
    _collect_toolgate(body, said)
    sent = get_member(body, "metadata")
    if sent is not None:
        metadata = parse_members(sent, "metadata")
        kept = _collect_metadata(metadata, said)
        if len(kept) < len(metadata):
            members["metadata"] = encode_raw(kept)
        if not kept:
            del members["metadata"]
    params = {key: value for key, (_, value) in said.values.items() if key.startswith(_MCP)}
    return members, params, said.asked()


def _collect_toolgate(body: Members, said: "_OptionCollector") -> None:
    sent = get_member(body, "toolgate")
    if sent is None:
        return
    for name, raw in parse_members(sent, "toolgate").items():
        if name == "mcp" and raw != NULL:
            for key, value in parse_members(raw, "toolgate.mcp").items():
                said.add(f"{_MCP}{key}", value, f"toolgate.mcp.{key}")
        elif name != "mcp":
            said.add(name if name.startswith(_MCP) else f"{_OURS}{name}", raw, f"toolgate.{name}")


def _collect_metadata(metadata: Members, said: "_OptionCollector") -> Members:
    """What of `metadata` is not ours."""
    _check_names(metadata, _METADATA, "`metadata`")
    for name, raw in metadata.items():
        if _is_ours(name):
            said.add(name, _decode_text(raw), f"metadata.{name}")
    return {name: raw for name, raw in metadata.items() if not _is_ours(name)}


def _check_names(members: Members, known: KnownNames, place: str) -> None:
    """Raises InvalidChat for a member that a model's server, or this one, may take for another."""
    impostor = known.find_impostor(members)
    if impostor is not None:
        raise InvalidChat(
            f"Invalid request: {describe_ambiguity(impostor, place)}.",
            hint="name each member once, as the API has it",
        )


def _is_ours(name: str) -> bool:
    return name.startswith((_MCP, _OURS))


def _decode_text(raw: msgspec.Raw) -> msgspec.Raw:
    """The JSON that is written in a text, for `metadata` holds nothing but texts; else `raw` itself."""
    try:
        text = msgspec.json.decode(raw, type=str)
        msgspec.json.decode(text)
    except UNREADABLE:
        return raw
    return msgspec.Raw(text.encode())


class _OptionCollector:
    """What a request says to the gateway, by dotted keys, wherever it says so."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[str, Any]] = {}
        """Where it is said, and what."""

    def add(self, key: str, raw: msgspec.Raw, param: str) -> None:
        known = SESSION_KEYS if key.startswith(_MCP) else OPTION_KEYS
        # What tasks say is not for a request to say: the policy has words for that.
        if key not in known and not key.startswith(_TASK_ONLY):
            names = ", ".join(f"`{name}`" for name in (*SESSION_KEYS, *OPTION_KEYS))
            raise InvalidChat(f"Unknown parameter: '{quote(param)}'.", param=param, hint=f"there are {names}")
        if raw == NULL:
            return
        try:
            value = msgspec.json.decode(raw)
        except UNREADABLE as exc:
            raise InvalidChat(f"Invalid value for '{param}': it is not JSON.", param=param) from exc
        place, other = self.values.setdefault(key, (param, value))
        if _encode_canonical(other) != _encode_canonical(value):
            raise InvalidChat(f"'{param}' and '{place}' say different things.", param=param)

    def asked(self) -> GatewayOptions:
        return GatewayOptions(
            mode=self._mode(),
            budgets=self._budgets(),
            explain=self._flag("toolgate.explain"),
            progress=self._flag("toolgate.progress"),
        )

    def _mode(self) -> ChatMode | None:
        param, mode = self.values.get("toolgate.mode", ("", None))
        modes: tuple[ChatMode, ...] = get_args(ChatMode)
        if mode is None:
            return None
        found: ChatMode | None = next((one for one in modes if one == mode), None)
        if found is None:
            raise unsupported_value(param, str(mode), modes)
        return found

    def _budgets(self) -> ChatBudgetLimits:
        param, value = self.values.get("toolgate.budgets", ("", {}))
        try:
            return parse_budgets(msgspec.json.encode(value))
        except InvalidParams as exc:
            raise InvalidChat(f"Invalid value for '{param}': {exc}.", param=param, hint=exc.hint) from exc

    def _flag(self, key: str) -> bool:
        param, value = self.values.get(key, ("", False))
        if not isinstance(value, bool):
            raise InvalidChat(f"Invalid type for '{param}': expected a boolean.", param=param)
        return value


def _encode_canonical(value: object) -> bytes:
    # Compared as bytes: to Python, `1`, `1.0` and `true` are all one.
    return msgspec.json.encode(value, order="sorted")


LEGACY_FINISH: Final = "function_call"
"""How an answer in the old form ends that hands over a call."""
_OLD: Final = ("functions", "function_call")
_NEW: Final = ("tools", "tool_choice")
_EMPTY: Final = msgspec.Raw(b'""')


class _OldCall(msgspec.Struct):
    name: str
    id: str | None = None


class _OldMessage(msgspec.Struct):
    role: str
    name: str | None = None
    function_call: _OldCall | None = None


_decode_message = msgspec.json.Decoder(_OldMessage).decode


def uses_functions(request: ChatRequest) -> bool:
    """Whether a request is in the old form."""
    return get_member(request.members, "functions") is not None


def convert_to_tools(request: ChatRequest) -> ChatRequest:
    """A request of the old form in the new one; InvalidChat for one that is in both."""
    members = {name: raw for name, raw in request.members.items() if name not in _OLD}
    for name in _NEW:
        if get_member(members, name) is not None:
            raise InvalidChat(f"'{name}' and 'functions' cannot be used together.", param=name)
        members.pop(name, None)
    functions = parse_array(request.members["functions"], "functions")
    members["tools"] = encode_raw([{"type": "function", "function": one} for one in functions])
    choice = _convert_choice(get_member(request.members, "function_call"))
    if choice is not None:
        members["tool_choice"] = msgspec.Raw(choice)
    messages = _to_tool_messages(request.messages)
    return replace(request, members=members, messages=messages, choice=parse_choice(choice))


def convert_to_function_call(message: Members) -> Members:
    """An assistant's message, or a delta of one, in the old form, which has room for one call alone."""
    calls = as_array(message.get("tool_calls"))
    rest = {name: raw for name, raw in message.items() if name != "tool_calls"}
    return {**rest, "function_call": encode_raw(_convert_call(calls[0]))} if calls else rest


def _convert_call(raw: msgspec.Raw) -> Members:
    call = as_object(raw) or {}
    function = as_object(call.get("function")) or {}
    parts = {name: function.get(name, _EMPTY) for name in ("name", "arguments")}
    call_id = as_text(call.get("id")) or ""
    return {**parts, "id": call["id"]} if call_id.startswith(ID_PREFIX) else parts


def _convert_choice(raw: msgspec.Raw | None) -> bytes | None:
    """`function_call` of a request as `tool_choice`: a word is the same in both."""
    if raw is None:
        return None
    if bytes(raw)[:1] != b"{":
        return bytes(raw)
    return msgspec.json.encode({"type": "function", "function": raw})


def _to_tool_messages(messages: Sequence[msgspec.Raw]) -> tuple[msgspec.Raw, ...]:
    """Calls and their results in the new form. A call without a result, or the reverse, stays as it is."""
    ids: dict[int, str] = {}
    for place, (message, following) in enumerate(pairwise(map(_parse_old_message, messages))):
        call = message.function_call
        if call is not None and following.role == "function" and following.name == call.name:
            # Nine letters and digits: no server takes fewer kinds of ids than that.
            ids[place] = ids[place + 1] = call.id or f"fn{place:07}"
    return tuple(
        _to_tool_message(raw, ids[place]) if place in ids else raw for place, raw in enumerate(messages)
    )


def _parse_old_message(raw: msgspec.Raw) -> _OldMessage:
    try:
        return _decode_message(raw)
    except UNREADABLE:
        return _OldMessage(role="")


def _to_tool_message(raw: msgspec.Raw, call_id: str) -> msgspec.Raw:
    message = decode_members(raw)
    sent = message.pop("function_call", None)
    if sent is None:
        result = {"content": get_member(message, "content") or _EMPTY}
        return encode_raw({"role": "tool", "tool_call_id": call_id, **result})
    call = {name: part for name, part in decode_members(sent).items() if name != "id"}
    message["tool_calls"] = encode_raw([{"id": call_id, "type": "function", "function": call}])
    return encode_raw(message)


_NO_CALL: Final = msgspec.Raw(b'"none"')
_CHOICES: Final = {"tools": "tool_choice", "functions": "function_call"}
_MARK: Final = ID_PREFIX.encode()


def build_forwarded(body: Members, request: ChatRequest) -> Members:
    """`body` in its order, as `request`, which was made of it, has it now: equal to it if nothing is ours."""
    members: Members = {}
    for name, sent in body.items():
        if name == "messages":
            members[name] = _forward_messages(sent, request)
        elif name in request.members:
            now = request.members[name]
            members[name] = sent if sent == now or _decode_member(sent) == _decode_member(now) else now
    return members


def disable_tools(members: Members) -> Members:
    """The same request, its tools still declared, to a model that may call none of them."""
    declared = [choice for name, choice in _CHOICES.items() if _decode_member(members.get(name))]
    return {**members, **dict.fromkeys(declared, _NO_CALL)}


def _forward_messages(sent: msgspec.Raw, request: ChatRequest) -> msgspec.Raw:
    messages = tuple(_strip_id(raw) for raw in request.messages)
    if tuple(decode_array(sent)) == messages:
        return sent
    return encode_raw(messages)


def _strip_id(raw: msgspec.Raw) -> msgspec.Raw:
    """A message without the id of ours that a `function_call` may carry (`legacy_functions`)."""
    if _MARK not in bytes(raw):
        return raw
    message = decode_members(raw)
    call = get_member(message, "function_call")
    if call is None:
        return raw
    message["function_call"] = encode_raw(
        {name: part for name, part in decode_members(call).items() if name != "id"}
    )
    return encode_raw(message)


def _decode_member(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)
