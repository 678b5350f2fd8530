"""A request for chat completions, read as the OpenAI API reads it, and the fields in it that are ours.

Only what decides something here is looked at. All else, known or not, is carried as it came.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

import msgspec

from toolgate.chat.budgets import parse_budgets
from toolgate.chat.client_tools import ToolChoice, parse_choice
from toolgate.chat.declarations import Declared, parse_tools
from toolgate.chat.messages import check_messages, parse_messages
from toolgate.chat.parsing import given, parse_given_flag, parse_members, parse_text, quoted, unsupported
from toolgate.errors import InvalidChat, InvalidParams
from toolgate.model.chat import BudgetsNarrowed, ChatMode
from toolgate.model.json_text import KnownNames, ambiguous
from toolgate.model.raw import NULL, UNREADABLE, Members, encode_raw

_MCP: Final = "mcp."
_OURS: Final = "toolgate."
_HOST_ALONE: Final = "mcp.task_"
SESSION_KEYS: Final = ("mcp.enabled", "mcp.server_ids", "mcp.tool_allowlist", "mcp.tool_denylist")
_METADATA: Final = KnownNames(prefixes=(_MCP, _OURS))
_BODY: Final = KnownNames(
    *("model", "messages", "input", "instructions", "tools", "tool_choice", "functions", "function_call"),
    *("stream", "stream_options", "metadata", "toolgate", "temperature", "max_tokens", "n", "store"),
    *("max_completion_tokens", "max_output_tokens", "parallel_tool_calls", "previous_response_id", "user"),
    prefixes=(_MCP, _OURS),
)
"""What decides which model is asked, and for what. All others may be there, each under a name of its own."""
ASKED_KEYS: Final = ("toolgate.mode", "toolgate.budgets", "toolgate.explain", "toolgate.progress")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks of the gateway itself."""

    mode: ChatMode | None = None
    budgets: BudgetsNarrowed = field(default_factory=BudgetsNarrowed)
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
    declared: Declared
    """The caller's own tools."""
    choice: ToolChoice
    params: Mapping[str, Any]
    """Its session parameters, `mcp.…`."""
    asked: Asked

    def asking(self, model: str) -> "ChatRequest":
        """The same request to a model of another name."""
        return replace(self, model=model, members={**self.members, "model": encode_raw(model)})


def parse_chat_request(body: Members) -> ChatRequest:
    """The request in a body, or InvalidChat, in the words of the OpenAI API where it has some."""
    members, params, asked = parse_own_fields(body)
    model = _parse_model(given(members, "model"))
    messages = parse_messages(members.pop("messages", None))
    check_messages(messages)
    is_stream = parse_given_flag(members, "stream")
    choice = members.get("tool_choice")
    return ChatRequest(
        members=members,
        messages=messages,
        model=model,
        is_stream=is_stream,
        wants_usage=_parse_stream_options(given(members, "stream_options"), is_stream=is_stream),
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
                f"Invalid value for 'tool_choice': '{quoted(name)}' not found in 'tools' parameter.",
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
    return parse_given_flag(options, "include_usage", param="stream_options.include_usage")


def parse_own_fields(body: Members) -> tuple[Members, Mapping[str, Any], Asked]:
    """A body without what is ours, its session parameters, and what it asks of the gateway; or InvalidChat.

    What is ours stands in a member `toolgate`, or dotted in `metadata` or in the body itself.
    """
    _check_names(body, _BODY, "the body")
    members = {name: raw for name, raw in body.items() if name != "toolgate" and not _is_ours(name)}
    said = _Said()
    for name, raw in body.items():
        if _is_ours(name):
            said.add(name, raw, name)
    _take_toolgate(body, said)
    sent = given(body, "metadata")
    if sent is not None:
        metadata = parse_members(sent, "metadata")
        kept = _take_metadata(metadata, said)
        if len(kept) < len(metadata):
            members["metadata"] = encode_raw(kept)
        if not kept:
            del members["metadata"]
    params = {key: value for key, (_, value) in said.values.items() if key.startswith(_MCP)}
    return members, params, said.asked()


def _take_toolgate(body: Members, said: "_Said") -> None:
    sent = given(body, "toolgate")
    if sent is None:
        return
    for name, raw in parse_members(sent, "toolgate").items():
        if name == "mcp" and raw != NULL:
            for key, value in parse_members(raw, "toolgate.mcp").items():
                said.add(f"{_MCP}{key}", value, f"toolgate.mcp.{key}")
        elif name != "mcp":
            said.add(name if name.startswith(_MCP) else f"{_OURS}{name}", raw, f"toolgate.{name}")


def _take_metadata(metadata: Members, said: "_Said") -> Members:
    """What of `metadata` is not ours."""
    _check_names(metadata, _METADATA, "`metadata`")
    for name, raw in metadata.items():
        if _is_ours(name):
            said.add(name, _unquoted(raw), f"metadata.{name}")
    return {name: raw for name, raw in metadata.items() if not _is_ours(name)}


def _check_names(members: Members, known: KnownNames, place: str) -> None:
    """Raises InvalidChat for a member that a model's server, or this one, may take for another."""
    impostor = known.find_impostor(members)
    if impostor is not None:
        raise InvalidChat(
            f"Invalid request: {ambiguous(impostor, place)}.", hint="name each member once, as the API has it"
        )


def _is_ours(name: str) -> bool:
    return name.startswith((_MCP, _OURS))


def _unquoted(raw: msgspec.Raw) -> msgspec.Raw:
    """The JSON that is written in a text, for `metadata` holds nothing but texts; else `raw` itself."""
    try:
        text = msgspec.json.decode(raw, type=str)
        msgspec.json.decode(text)
    except UNREADABLE:
        return raw
    return msgspec.Raw(text.encode())


class _Said:
    """What a request says to the gateway, by dotted keys, wherever it says so."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[str, Any]] = {}
        """Where it is said, and what."""

    def add(self, key: str, raw: msgspec.Raw, param: str) -> None:
        known = SESSION_KEYS if key.startswith(_MCP) else ASKED_KEYS
        # What tasks say is not for a request to say: the policy has words for that.
        if key not in known and not key.startswith(_HOST_ALONE):
            names = ", ".join(f"`{name}`" for name in (*SESSION_KEYS, *ASKED_KEYS))
            raise InvalidChat(
                f"Unknown parameter: '{quoted(param)}'.", param=param, hint=f"there are {names}"
            )
        if raw == NULL:
            return
        try:
            value = msgspec.json.decode(raw)
        except UNREADABLE as exc:
            raise InvalidChat(f"Invalid value for '{param}': it is not JSON.", param=param) from exc
        place, other = self.values.setdefault(key, (param, value))
        if _canonical(other) != _canonical(value):
            raise InvalidChat(f"'{param}' and '{place}' say different things.", param=param)

    def asked(self) -> Asked:
        return Asked(
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
            raise unsupported(param, str(mode), modes)
        return found

    def _budgets(self) -> BudgetsNarrowed:
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


def _canonical(value: object) -> bytes:
    # Compared as bytes: to Python, `1`, `1.0` and `true` are all one.
    return msgspec.json.encode(value, order="sorted")
