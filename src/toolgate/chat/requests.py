"""Parses a Chat Completions request, and the options in it that are for the gateway.

Parses only the members that the gateway needs, and passes on all others as they came. Also converts requests
with `functions` and `function_call`, the form before `tools`: the tool loop knows only tools. The old form
has no ids, so an id that must come back travels in the `function_call` itself: clients send an assistant's
message back as they got it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, get_args

import msgspec

from toolgate.chat import parsing
from toolgate.chat.client_tools import ClientTools, ToolChoice, parse_choice, parse_tools
from toolgate.chat.config import ChatOptions, parse_budgets
from toolgate.chat.hidden_turns import HIDDEN_MARK, ID_PREFIX
from toolgate.chat.parsing import get_member, parse_array, parse_members, quote
from toolgate.errors import InvalidChat, InvalidParams
from toolgate.model import json_text
from toolgate.model.chat import ChatMode
from toolgate.model.json_text import NULL, UNREADABLE, KnownNames, Members, decode_members, encode_raw

_MCP: Final = "mcp."
_OURS: Final = "toolgate."
SESSION_KEYS: Final = ("mcp.enabled", "mcp.server_ids", "mcp.tool_allowlist", "mcp.tool_denylist")
OPTION_KEYS: Final = ("toolgate.mode", "toolgate.budgets", "toolgate.explain", "toolgate.progress")
_METADATA: Final = KnownNames(prefixes=(_MCP, _OURS))
_BODY: Final = KnownNames(
    *("model", "messages", "input", "instructions", "tools", "tool_choice", "functions", "function_call"),
    *("stream", "stream_options", "metadata", "toolgate", "temperature", "max_tokens", "n", "store"),
    *("max_completion_tokens", "max_output_tokens", "parallel_tool_calls", "previous_response_id", "user"),
    prefixes=(_MCP, _OURS),
)
"""Members that select the model and its prompt. Other members may not have names that look like these."""
LEGACY_FINISH: Final = "function_call"
"""The finish reason of a completion in the old form with a call for the client."""
_LEGACY_MEMBERS: Final = ("functions", "function_call")
_EMPTY: Final = msgspec.Raw(b'""')
_CHOICES: Final = {"tools": "tool_choice", "functions": "function_call"}
_NO_CALL: Final = msgspec.Raw(b'"none"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    members: Members
    """All members except the messages and those for the gateway."""
    messages: tuple[msgspec.Raw, ...]
    model: str
    is_stream: bool
    wants_usage: bool
    """Whether the stream ends with the usage."""
    declared: ClientTools
    choice: ToolChoice
    params: Mapping[str, Any]
    """Its session parameters, `mcp.…`."""
    options: ChatOptions

    def with_model(self, model: str) -> "ChatRequest":
        return replace(self, model=model, members={**self.members, "model": encode_raw(model)})


def parse_chat_request(body: Members) -> ChatRequest:
    """Parse a body. Raises InvalidChat, with the OpenAI API's wording if there is one."""
    members, params, options = parse_gateway_options(body)
    raw_model = get_member(members, "model")
    model = "" if raw_model is None else parsing.parse_text(raw_model, "model")
    if not model:
        raise InvalidChat("you must provide a model parameter", param="model")
    messages = parsing.parse_messages(members.pop("messages", None))
    parsing.check_messages(messages)
    is_stream = parsing.parse_optional_flag(members, "stream")
    stream_options = get_member(members, "stream_options")
    if stream_options is not None and not is_stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise InvalidChat(message, param="stream_options")
    streaming = {} if stream_options is None else parse_members(stream_options, "stream_options")
    usage_param = "stream_options.include_usage"
    choice = members.get("tool_choice")
    return ChatRequest(
        members=members,
        messages=messages,
        model=model,
        is_stream=is_stream,
        wants_usage=parsing.parse_optional_flag(streaming, "include_usage", param=usage_param),
        declared=parse_tools(members),
        choice=parse_choice(None if choice is None else bytes(choice)),
        params=params,
        options=options,
    )


def check_choice(choice: ToolChoice, declared: Collection[str]) -> None:
    """Raises InvalidChat if `choice` requires a tool that is not `declared`, once all tools are known."""
    missing = next((name for name in choice.names if name not in declared), None)
    fault = "" if missing is None else f"'{quote(missing)}' not found in 'tools' parameter."
    if choice.kind == "required" and not declared:
        fault = "'tool_choice' is only allowed when 'tools' are specified."
    if fault:
        raise InvalidChat(f"Invalid value for 'tool_choice': {fault}", param="tool_choice")


# Options for the gateway


def parse_gateway_options(body: Members) -> tuple[Members, Mapping[str, Any], ChatOptions]:
    """Split a body into members for the model, session parameters, and options for the gateway. Options are
    in a member `toolgate`, or dotted in `metadata` or in the body itself. Raises InvalidChat."""
    _check_names(body, _BODY, "the body")
    options: _Options = {}
    members: Members = {}
    for name, raw in body.items():
        if _is_option(name):
            _add_option(options, name, raw, name)
        elif name != "toolgate":
            members[name] = raw
    _collect_toolgate(body, options)
    if (sent := get_member(body, "metadata")) is not None:
        metadata = parse_members(sent, "metadata")
        _check_names(metadata, _METADATA, "`metadata`")
        for name, raw in metadata.items():
            if _is_option(name):
                _add_option(options, name, _decode_text(raw), f"metadata.{name}")
        kept = {name: raw for name, raw in metadata.items() if not _is_option(name)}
        if not kept:
            del members["metadata"]
        elif len(kept) < len(metadata):
            members["metadata"] = encode_raw(kept)
    params = {key: value for key, (_, value) in options.items() if key.startswith(_MCP)}
    return members, params, _parse_options(options)


def _collect_toolgate(body: Members, options: "_Options") -> None:
    sent = get_member(body, "toolgate")
    for name, raw in ({} if sent is None else parse_members(sent, "toolgate")).items():
        if name == "mcp" and raw != NULL:
            for key, value in parse_members(raw, "toolgate.mcp").items():
                _add_option(options, f"{_MCP}{key}", value, f"toolgate.mcp.{key}")
        elif name != "mcp":
            key = name if name.startswith(_MCP) else f"{_OURS}{name}"
            _add_option(options, key, raw, f"toolgate.{name}")


def _check_names(members: Members, known: KnownNames, place: str) -> None:
    """Raises InvalidChat for a member that a model's server, or this one, may mistake for another."""
    impostor = known.find_impostor(members)
    if impostor is not None:
        hint = "name each member once, as the API has it"
        raise InvalidChat(f"Invalid request: {json_text.describe_ambiguity(impostor, place)}.", hint=hint)


def _is_option(name: str) -> bool:
    return name.startswith((_MCP, _OURS))


def _decode_text(raw: msgspec.Raw) -> msgspec.Raw:
    """Decode the JSON in a string, since `metadata` holds only strings; return anything else as it is."""
    try:
        text = msgspec.json.decode(raw, type=str)
        msgspec.json.decode(text)
    except UNREADABLE:
        return raw
    return msgspec.Raw(text.encode())


_Options = dict[str, tuple[str, Any]]
"""Dotted key → the option's place in the request, and its value."""


def _add_option(options: _Options, key: str, raw: msgspec.Raw, param: str) -> None:
    known = SESSION_KEYS if key.startswith(_MCP) else OPTION_KEYS
    # Keys of tasks pass here: policy rejects them with its own errors.
    if key not in known and not key.startswith("mcp.task_"):
        names = ", ".join(f"`{name}`" for name in (*SESSION_KEYS, *OPTION_KEYS))
        raise InvalidChat(f"Unknown parameter: '{quote(param)}'.", param=param, hint=f"there are {names}")
    if raw == NULL:
        return
    try:
        value = msgspec.json.decode(raw)
    except UNREADABLE as exc:
        raise InvalidChat(f"Invalid value for '{param}': it is not JSON.", param=param) from exc
    place, other = options.setdefault(key, (param, value))
    # Compared as bytes: to Python, `1`, `1.0` and `true` are equal.
    if json_text.encode_canonical(other) != json_text.encode_canonical(value):
        raise InvalidChat(f"'{param}' and '{place}' contradict each other.", param=param)


def _parse_options(options: _Options) -> ChatOptions:
    _, progress = options.get("toolgate.progress", ("", None))
    param, mode = options.get("toolgate.mode", ("", None))
    modes: tuple[ChatMode, ...] = get_args(ChatMode)
    if mode is not None and mode not in modes:
        raise parsing.unsupported_value(param, str(mode), modes)
    param, sent = options.get("toolgate.budgets", ("", {}))
    try:
        budgets = parse_budgets(msgspec.json.encode(sent))
    except InvalidParams as exc:
        raise InvalidChat(f"Invalid value for '{param}': {exc}.", param=param, hint=exc.hint) from exc
    return ChatOptions(
        mode=mode,
        budgets=budgets,
        explain=_parse_flag(options, "toolgate.explain"),
        progress="full" if progress == "full" else _parse_flag(options, "toolgate.progress"),
    )


def _parse_flag(options: _Options, key: str) -> bool:
    param, value = options.get(key, ("", False))
    if not isinstance(value, bool):
        raise InvalidChat(f"Invalid type for '{param}': expected a boolean.", param=param)
    return value


# The form before `tools`


class _LegacyCall(msgspec.Struct):
    name: str
    id: str | None = None


class _LegacyMessage(msgspec.Struct):
    role: str
    name: str | None = None
    function_call: _LegacyCall | None = None


def uses_functions(request: ChatRequest) -> bool:
    """Whether a request has the old form."""
    return get_member(request.members, "functions") is not None


def convert_to_tools(request: ChatRequest) -> ChatRequest:
    """Convert a request from the old form. Raises InvalidChat for a request that mixes both forms."""
    members = {name: raw for name, raw in request.members.items() if name not in _LEGACY_MEMBERS}
    for name in ("tools", "tool_choice"):
        if get_member(members, name) is not None:
            raise InvalidChat(f"'{name}' and 'functions' cannot be used together.", param=name)
        members.pop(name, None)
    functions = parse_array(request.members["functions"], "functions")
    members["tools"] = encode_raw([{"type": "function", "function": one} for one in functions])
    raw = get_member(request.members, "function_call")
    choice = None if raw is None else bytes(raw)
    if raw is not None and choice and choice[:1] == b"{":  # a word is the same in both forms
        choice = msgspec.json.encode({"type": "function", "function": raw})
    if choice is not None:
        members["tool_choice"] = msgspec.Raw(choice)
    messages = _convert_messages(request.messages)
    return replace(request, members=members, messages=messages, choice=parse_choice(choice))


def convert_to_function_call(message: Members) -> Members:
    """Convert an assistant's message, or a delta of one, to the old form, which has room for one call."""
    calls = json_text.as_array(message.get("tool_calls"))
    rest = {name: raw for name, raw in message.items() if name != "tool_calls"}
    if not calls:
        return rest
    call = json_text.as_object(calls[0]) or {}
    function = json_text.as_object(call.get("function")) or {}
    legacy = {name: function.get(name, _EMPTY) for name in ("name", "arguments")}
    if (json_text.as_text(call.get("id")) or "").startswith(ID_PREFIX):
        legacy["id"] = call["id"]
    return {**rest, "function_call": encode_raw(legacy)}


def _convert_messages(messages: Sequence[msgspec.Raw]) -> tuple[msgspec.Raw, ...]:
    """Convert calls with their results. A call without a result, or a result without a call, stays."""
    ids: dict[int, str] = {}
    for at, (message, following) in enumerate(pairwise(map(_parse_legacy, messages))):
        call = message.function_call
        if call is not None and following.role == "function" and following.name == call.name:
            # Nine letters and digits: every server accepts such ids.
            ids[at] = ids[at + 1] = call.id or f"fn{at:07}"
    return tuple(_convert_message(raw, ids[at]) if at in ids else raw for at, raw in enumerate(messages))


def _parse_legacy(raw: msgspec.Raw) -> _LegacyMessage:
    try:
        return msgspec.json.decode(raw, type=_LegacyMessage)
    except UNREADABLE:
        return _LegacyMessage(role="")


def _convert_message(raw: msgspec.Raw, call_id: str) -> msgspec.Raw:
    message = decode_members(raw)
    sent = message.pop("function_call", None)
    if sent is None:
        content = get_member(message, "content") or _EMPTY
        return encode_raw({"role": "tool", "tool_call_id": call_id, "content": content})
    call = {name: part for name, part in decode_members(sent).items() if name != "id"}
    message["tool_calls"] = encode_raw([{"id": call_id, "type": "function", "function": call}])
    return encode_raw(message)


# Passthrough


def build_forwarded(body: Members, request: ChatRequest) -> Members:
    """Build the request to forward: the members of `body` in their order, with the changes of `request`.
    Equal to `body` if nothing in it is for the gateway."""
    members: Members = {}
    for name, sent in body.items():
        if name == "messages":
            messages = tuple(map(_strip_id, request.messages))
            members[name] = sent if tuple(json_text.decode_array(sent)) == messages else encode_raw(messages)
        elif name in request.members:
            now = request.members[name]
            is_same = sent == now or msgspec.json.decode(sent) == msgspec.json.decode(now)
            members[name] = sent if is_same else now
    return members


def disable_tools(members: Members) -> Members:
    """Forbid the model to call any tool. The request still declares them."""
    choices = [choice for name, choice in _CHOICES.items() if msgspec.json.decode(members.get(name, NULL))]
    return {**members, **dict.fromkeys(choices, _NO_CALL)}


def _strip_id(raw: msgspec.Raw) -> msgspec.Raw:
    """Remove the gateway's id from a message's `function_call`."""
    if HIDDEN_MARK not in bytes(raw):
        return raw
    message = decode_members(raw)
    call = get_member(message, "function_call")
    if call is None:
        return raw
    legacy = {name: part for name, part in decode_members(call).items() if name != "id"}
    return encode_raw({**message, "function_call": encode_raw(legacy)})
