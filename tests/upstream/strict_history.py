"""What OpenAI refuses with a 400: requests whose history or tools do not add up."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_TOOLS: Final = 128
_MAX_ID: Final = 40


def fault_of(body: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with a chat request, and with which part of it; None: nothing."""
    return next(_faults(body), None)


def refusal(message: str, param: str | None) -> dict[str, Any]:
    """As OpenAI says it."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}


def _faults(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not isinstance(body.get("model"), str):
        yield "you must provide a model parameter", "model"
    yield from _tool_faults(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "Missing required parameter: 'messages'.", "messages"
    else:
        yield from _history_faults(messages)


def _tool_faults(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tools = body.get("tools")
    if tools == []:
        yield "Invalid 'tools': empty array. Expected an array with minimum length 1.", "tools"
    if body.get("tool_choice") is not None and not tools:
        yield "Invalid value for 'tool_choice': only allowed when 'tools' are specified.", "tool_choice"
    if len(tools or ()) > _MAX_TOOLS:
        yield f"Invalid 'tools': array too long. Expected at most {_MAX_TOOLS}.", "tools"
    names = [tool["function"]["name"] for tool in tools or () if tool["type"] == "function"]
    for place, name in enumerate(names):
        if not _NAME.fullmatch(name):
            yield (
                f"Invalid 'tools[{place}].function.name': string does not match pattern.",
                f"tools[{place}].function.name",
            )


def _history_faults(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    open_ids: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_ids:
                yield (
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
                    f"messages.[{place}].role",
                )
            else:
                open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            yield _unanswered(open_ids, place)
        open_ids = [call["id"] for call in message.get("tool_calls") or ()]
        yield from _call_faults(message, place)
    if open_ids:
        yield _unanswered(open_ids, len(messages))


def _unanswered(open_ids: Sequence[str], place: int) -> tuple[str, str]:
    ids = ", ".join(open_ids)
    content = f"An assistant message with 'tool_calls' must be followed by tool messages; without any: {ids}"
    return content, f"messages.[{place}].role"


def _call_faults(message: Mapping[str, Any], place: int) -> Iterator[tuple[str, str]]:
    for index, call in enumerate(message.get("tool_calls") or ()):
        where = f"messages[{place}].tool_calls[{index}]"
        if len(call["id"]) > _MAX_ID:
            yield f"Invalid '{where}.id': string too long. Expected at most {_MAX_ID}.", f"{where}.id"
        if call.get("type") != "function":
            continue
        if not _NAME.fullmatch(call["function"]["name"]):
            yield (
                f"Invalid '{where}.function.name': string does not match pattern.",
                f"{where}.function.name",
            )
        if not _is_object(call["function"]["arguments"]):
            yield f"Invalid '{where}.function.arguments': not a JSON object.", f"{where}.function.arguments"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
